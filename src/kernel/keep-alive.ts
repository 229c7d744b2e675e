import type { Cancel } from './clock.js';

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
