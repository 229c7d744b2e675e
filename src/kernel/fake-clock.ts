/** A clock that moves only when a test advances it. Timers due at the same instant run in the order they were set. */
import type { Cancel, Clock } from './clock.js';

interface Timer {
  readonly atMs: number;
  readonly order: number;
  readonly run: () => void;
}

export class FakeClock implements Clock {
  #nowMs: number;
  #wallOffsetMs: number;
  #sleptMs = 0;
  #order = 0;
  readonly #timers = new Set<Timer>();

  constructor(nowMs = 0, wallStart = new Date('2026-01-01T00:00:00Z')) {
    this.#nowMs = nowMs;
    this.#wallOffsetMs = wallStart.getTime() - nowMs;
  }

  nowMs(): number {
    return this.#nowMs;
  }

  sinceBootMs(): number {
    return this.#nowMs + this.#sleptMs;
  }

  date(): Date {
    return new Date(this.#wallOffsetMs + this.#nowMs);
  }

  at(atMs: number, run: () => void): Cancel {
    const timer: Timer = { atMs, order: this.#order++, run };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  get pendingTimers(): number {
    return this.#timers.size;
  }

  /** Advances monotonic time and runs due timers in order. */
  advance(byMs: number): void {
    const untilMs = this.#nowMs + byMs;
    for (let next = this.#earliest(untilMs); next; next = this.#earliest(untilMs)) {
      this.#timers.delete(next);
      this.#nowMs = Math.max(this.#nowMs, next.atMs);
      next.run();
    }
    this.#nowMs = untilMs;
  }

  /** Like `advance`, but lets promise reactions run between timers. */
  async advanceAsync(byMs: number): Promise<void> {
    const untilMs = this.#nowMs + byMs;
    await settle();
    for (let next = this.#earliest(untilMs); next; next = this.#earliest(untilMs)) {
      this.#timers.delete(next);
      this.#nowMs = Math.max(this.#nowMs, next.atMs);
      next.run();
      await settle();
    }
    this.#nowMs = untilMs;
    await settle();
  }

  /** Simulates a change of the wall clock by hand or NTP. Monotonic time does not change. */
  jumpWall(byMs: number): void {
    this.#wallOffsetMs += byMs;
  }

  /** Simulates sleep of the machine: wall time and time since boot advance, monotonic time does not, and no timer fires. */
  sleep(ms: number): void {
    this.#sleptMs += ms;
    this.#wallOffsetMs += ms;
  }

  #earliest(untilMs: number): Timer | undefined {
    let found: Timer | undefined;
    for (const timer of this.#timers) {
      if (timer.atMs > untilMs) continue;
      if (!found || timer.atMs < found.atMs || (timer.atMs === found.atMs && timer.order < found.order)) found = timer;
    }
    return found;
  }
}

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));
