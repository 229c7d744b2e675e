/**
 * A bounded queue that serves parties round robin, and the entries of each party in FIFO order. When the queue is full, a party
 * with a shorter line displaces the newest entry of the longest line.
 * Invariant: never more than `entriesMax` entries; a party without entries is not stored.
 */
import { Fifo } from './fifo.js';

export type Admission<Entry> =
  | { readonly admitted: true; readonly displaced: Entry | undefined }
  | { readonly admitted: false };

export class FairQueue<Entry extends object> {
  readonly #entriesMax: number;
  /** The next party is first. */
  readonly #lines = new Map<string, Fifo<Entry>>();
  #size = 0;

  constructor(entriesMax: number) {
    this.#entriesMax = entriesMax;
  }

  get size(): number {
    return this.#size;
  }

  *[Symbol.iterator](): Iterator<Entry> {
    for (const line of this.#lines.values()) yield* line;
  }

  admits(party: string): boolean {
    return this.#size < this.#entriesMax || this.#longest(party) !== undefined;
  }

  push(party: string, entry: Entry): Admission<Entry> {
    let displaced: Entry | undefined;
    if (this.#size >= this.#entriesMax) {
      const longest = this.#longest(party);
      if (longest === undefined) return { admitted: false };
      displaced = this.#lines.get(longest)?.newest as Entry;
      this.delete(longest, displaced);
    }
    const line = this.#lines.get(party) ?? new Fifo<Entry>();
    if (line.size === 0) this.#lines.set(party, line);
    line.push(entry);
    this.#size++;
    return { admitted: true, displaced };
  }

  shift(): Entry | undefined {
    for (const [party, line] of this.#lines) {
      const entry = line.shift();
      this.#size--;
      // The party moves to the end of the round. A party that returns later also starts at the end.
      if (this.#lines.size > 1 || line.size === 0) this.#lines.delete(party);
      if (line.size > 0) this.#lines.set(party, line);
      return entry;
    }
    return undefined;
  }

  /** Returns false if the entry is no longer queued. */
  delete(party: string, entry: Entry): boolean {
    const line = this.#lines.get(party);
    if (!line?.delete(entry)) return false;
    this.#size--;
    if (line.size === 0) this.#lines.delete(party);
    return true;
  }

  /** Returns the party with the longest line, if that line is longer than the line of `party` would be with one more entry. */
  #longest(party: string): string | undefined {
    let longest: string | undefined;
    let size = (this.#lines.get(party)?.size ?? 0) + 1;
    for (const [other, line] of this.#lines) {
      if (line.size <= size) continue;
      longest = other;
      size = line.size;
    }
    return longest;
  }
}
