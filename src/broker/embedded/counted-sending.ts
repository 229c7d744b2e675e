/**
 * Sends to a host whose journal is its own after the disk knows that it was sent: were the broker killed in between, the next
 * host would be handed the request as one that nobody ever had, and would run it again.
 * Not here: what is sent, and the counting itself (postbox.ts).
 *
 * Invariants: in the order it was asked for; all of one turn waits for one commit; when the disk fails, nothing is sent, and
 * whoever asked hears so. At most as many wait as the window of whoever gets them.
 */
import type { MailStore } from '../store-port.js';

/** Both look for themselves whether it is still wanted. */
interface Sending {
  readonly send: () => void;
  readonly notSent: () => void;
}

export class CountedSending {
  readonly #store: Pick<MailStore, 'flush'>;
  #waiting: Sending[] = [];

  constructor(store: Pick<MailStore, 'flush'>) {
    this.#store = store;
  }

  add(sending: Sending): void {
    if (this.#waiting.push(sending) === 1) queueMicrotask(() => void this.#sendAll());
  }

  async #sendAll(): Promise<void> {
    const sendings = this.#waiting;
    this.#waiting = [];
    try {
      await this.#store.flush();
    } catch {
      // The store has told why.
      for (const { notSent } of sendings) notSent();
      return;
    }
    for (const { send } of sendings) send();
  }
}
