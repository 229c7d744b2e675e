/**
 * Cancels of requests that are on disk only, while nobody is there to take them or their mailbox is still being read.
 * Not here: what a cancel does to a request that was found (postbox.ts), the reading itself (disk-reading.ts).
 *
 * Invariant: whichever finds the request first, the look at the disk or the reading of its mailbox, finds the cancel too. Who sends
 * the request once more has taken the cancel back.
 */
import { FairMap } from '../fair-map.js';
import type { Mail, MailStore } from '../store-port.js';
import type { DiskReading } from './disk-reading.js';

export interface DiskCancelsParts {
  readonly name: string;
  readonly store: MailStore;
  readonly disk: DiskReading;
}

/** Of one mailbox, that were not found yet. Past it the oldest of whoever has most are lost. */
const cancelsMax = 1_024;

export class DiskCancels {
  readonly #parts: DiskCancelsParts;
  readonly #cancelled = new FairMap<true>(cancelsMax);

  constructor(parts: DiskCancelsParts) {
    this.#parts = parts;
  }

  /** The request, when it is found on disk alone. Otherwise the reading finds it, or it is over. */
  async find(sender: string, id: string): Promise<Mail | undefined> {
    const { name, store, disk } = this.#parts;
    this.#cancelled.set(sender, id, true);
    if (disk.isReading) return undefined;
    let mail: Mail | undefined;
    try {
      mail = await store.find(name, sender, id);
    } catch {
      // It is read again when somebody comes, and the cancel is still there then.
      return undefined;
    }
    if (disk.isReading || disk.isLoaded) return undefined;
    return this.#cancelled.take(sender, id) && mail;
  }

  /** Whether it was cancelled, of what the reading found or its sender sends again; then that is done with. */
  take({ from, id }: Pick<Mail, 'from' | 'id'>): boolean {
    return this.#cancelled.size > 0 && this.#cancelled.take(from.mailbox, id) === true;
  }

  /** Everything was read: what was not found is over. */
  clear(): void {
    this.#cancelled.clear();
  }
}
