/**
 * Cancels of requests that are on disk only, while nobody is there to take them or their mailbox is still being read.
 * Not here: what a cancel does to a request that was found (postbox.ts), the reading itself (disk-reading.ts).
 *
 * Invariant: whichever finds the request first, the look at the disk or the reading of its mailbox, finds the cancel too. Who sends
 * the request once more has taken the cancel back.
 */
import type { Mail, MailStore } from '../store-port.js';
import type { DiskReading } from './disk-reading.js';

export interface DiskCancelsParts {
  readonly name: string;
  readonly store: MailStore;
  readonly disk: DiskReading;
}

/** Of one mailbox, that were not found yet. Past it the oldest are lost. */
const cancelsMax = 1_024;

export class DiskCancels {
  readonly #parts: DiskCancelsParts;
  /** Oldest first. */
  readonly #names = new Set<string>();

  constructor(parts: DiskCancelsParts) {
    this.#parts = parts;
  }

  /** The request, when it is found on disk alone. Otherwise the reading finds it, or it is over. */
  async find(sender: string, id: string): Promise<Mail | undefined> {
    const { name, store, disk } = this.#parts;
    const cancelled = nameOf(sender, id);
    if (this.#names.size >= cancelsMax) for (const oldest of this.#names) if (this.#names.delete(oldest)) break;
    this.#names.add(cancelled);
    if (disk.isReading) return undefined;
    let mail: Mail | undefined;
    try {
      mail = await store.find(name, sender, id);
    } catch {
      // It is read again when somebody comes, and the cancel is still there then.
      return undefined;
    }
    if (disk.isReading || disk.isLoaded) return undefined;
    return this.#names.delete(cancelled) ? mail : undefined;
  }

  /** Whether it was cancelled, of what the reading found or its sender sends again; then that is done with. */
  take({ from, id }: Pick<Mail, 'from' | 'id'>): boolean {
    return this.#names.size > 0 && this.#names.delete(nameOf(from.mailbox, id));
  }

  /** Everything was read: what was not found is over. */
  clear(): void {
    this.#names.clear();
  }
}

/** Neither has a space in it. */
const nameOf = (sender: string, id: string): string => `${sender} ${id}`;
