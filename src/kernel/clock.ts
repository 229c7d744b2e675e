/**
 * Time as an argument. Only `systemClock` reads the real clock. Its timers do not keep the process alive; `KeepAlive` does.
 * Invariant: durations and deadlines use `nowMs` (monotonic); `date` is for people and logs.
 */
import { uptime } from 'node:os';
import type { CancelSignal } from './cancel-signal.js';

export type Cancel = () => void;

export interface Clock {
  nowMs(): number;
  /** Milliseconds since boot, including sleep of the machine. Absent if `nowMs` includes sleep. */
  sinceBootMs?(): number;
  /** Wall time, which may jump. */
  date(): Date;
  /** Runs `run` once at `atMs` or as soon after as possible. Returns a function that cancels it. Never keeps the process alive. */
  at(atMs: number, run: () => void): Cancel;
}

/** The global object, because importing `node:perf_hooks` loads much more. */
const { performance } = globalThis;

/** Node fires a longer timer at once, so a longer wait uses several timers. */
const timerMaxMs = 2_147_483_647;

/**
 * On Linux `performance.now()` is CLOCK_MONOTONIC, which stops while the machine sleeps; /proc/uptime is CLOCK_BOOTTIME, which
 * does not. On other systems the monotonic clock of libuv does not stop, and `uptime()` may depend on wall time.
 */
export const bootClock = (platform: string, uptimeS: () => number): Pick<Clock, 'sinceBootMs'> =>
  platform === 'linux' ? { sinceBootMs: () => uptimeS() * 1_000 } : {};

export const systemClock: Clock = {
  nowMs: () => performance.now(),
  ...bootClock(process.platform, uptime),
  date: () => new Date(),
  at(atMs, run) {
    let timer: NodeJS.Timeout;
    const arm = () => {
      const leftMs = atMs - performance.now();
      // Timers may fire up to a millisecond early, so the time is checked again.
      timer = setTimeout(() => (performance.now() >= atMs ? run() : arm()), Math.min(Math.max(leftMs, 0), timerMaxMs));
      timer.unref();
    };
    arm();
    return () => clearTimeout(timer);
  },
};

/** Resolves after `delayMs` on the given clock, or at once when `signal` aborts. */
export function sleep(clock: Clock, delayMs: number, signal?: CancelSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const done = () => {
      cancel();
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const cancel = clock.at(clock.nowMs() + delayMs, done);
    signal?.addEventListener('abort', done, { once: true });
  });
}

/** Keeps the process alive until the returned function is called. Timers of the clock do not keep it alive. */
export function keepAlive(): Cancel {
  const alive = new KeepAlive();
  alive.hold();
  return () => alive.close();
}

export class KeepAlive {
  /** A port without messages: the event loop waits for it, and it needs neither a timer nor a descriptor. */
  readonly #port = new MessageChannel().port1;
  #held = 0;

  constructor() {
    this.#port.unref();
  }

  hold(): void {
    if (this.#held++ === 0) this.#port.ref();
  }

  letGo(): void {
    if (--this.#held === 0) this.#port.unref();
  }

  close(): void {
    this.#port.close();
  }
}
