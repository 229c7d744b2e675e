/** The simulation's own timers, counted, so that whatever else is left on the clock is the host's. */
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
