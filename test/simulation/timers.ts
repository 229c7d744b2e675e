/** Counts the timers of the simulation, so that all other timers on the clock belong to the host. */
import type { Cancel } from '../../src/kernel/clock.js';
import type { FakeClock } from '../../src/kernel/fake-clock.js';

export class Timers {
  pending = 0;
  readonly #clock: FakeClock;

  constructor(clock: FakeClock) {
    this.#clock = clock;
  }

  nowMs(): number {
    return this.#clock.nowMs();
  }

  after(ms: number, run: () => void): Cancel {
    this.pending++;
    let isOver = false;
    const end = () => {
      if (isOver) return false;
      isOver = true;
      this.pending--;
      return true;
    };
    const cancel = this.#clock.at(this.#clock.nowMs() + ms, () => end() && run());
    return () => {
      if (end()) cancel();
    };
  }
}
