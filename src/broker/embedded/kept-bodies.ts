/**
 * Bodies that stay in memory although they are on disk, so that what is taken at once is not read again. Bounded for each
 * mailbox and for all together; what finds no room is read when it is its turn.
 */
import type { Entry } from './mailbox.js';

/** Bytes that all mailboxes share. */
export class ByteBudget {
  #left: number;

  constructor(bytes: number) {
    this.#left = bytes;
  }

  take(bytes: number): boolean {
    if (bytes > this.#left) return false;
    this.#left -= bytes;
    return true;
  }

  giveBack(bytes: number): void {
    this.#left += bytes;
  }
}

/** Of one mailbox. */
export class KeptBodies {
  readonly #shared: ByteBudget;
  readonly #bytesMax: number;
  #bytes = 0;

  constructor(shared: ByteBudget, bytesMax: number) {
    this.#shared = shared;
    this.#bytesMax = bytesMax;
  }

  get bytes(): number {
    return this.#bytes;
  }

  keep(entry: Entry, body: Buffer): void {
    if (this.#bytes + entry.bytes > this.#bytesMax || !this.#shared.take(entry.bytes)) return;
    this.#bytes += entry.bytes;
    entry.isKept = true;
    entry.body = body;
  }

  drop(entry: Entry): void {
    if (entry.isKept) {
      this.#bytes -= entry.bytes;
      this.#shared.giveBack(entry.bytes);
    }
    entry.isKept = false;
    entry.body = undefined;
  }
}
