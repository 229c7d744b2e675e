/**
 * Sends to a host whose journal is its own after the disk knows that it was sent: were the broker killed in between, the next
 * host would be handed the request as one that nobody ever had, and would run it again.
 * Not here: what is sent, and the counting itself (postbox.ts).
 *
 * Invariants: in the order it was asked for; all of one turn waits for one commit; when the disk fails, nothing is sent. At
 * most as many wait as the window of whoever gets them.
 */
import type { MailStore } from '../store-port.js';

export class CountedSending {
  readonly #store: Pick<MailStore, 'flush'>;
  #waiting: (() => void)[] = [];

  constructor(store: Pick<MailStore, 'flush'>) {
    this.#store = store;
  }

  /** `send` looks for itself whether it is still wanted. */
  add(send: () => void): void {
    if (this.#waiting.push(send) === 1) queueMicrotask(() => void this.#sendAll());
  }

  async #sendAll(): Promise<void> {
    const sends = this.#waiting;
    this.#waiting = [];
    try {
      await this.#store.flush();
    } catch {
      // The store has told why; its holder's connection ends, and what it never saw is not begun.
      return;
    }
    for (const send of sends) send();
  }
}
