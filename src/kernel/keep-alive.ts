/**
 * Keeps this process from ending by itself. The clock's timers keep nobody alive, which is right for all but the work
 * that must be finished before the end.
 */
import type { Cancel } from './clock.js';

/** Until the returned function is called. */
export function keepAlive(): Cancel {
  // A port on which nothing ever comes: the loop waits for it, and it needs neither a timer nor a descriptor.
  const { port1, port2 } = new MessageChannel();
  port1.ref();
  return () => {
    port1.close();
    port2.close();
  };
}

/** For work that comes and goes: counts it, and keeps the process while there is any. */
export class KeepAlive {
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
