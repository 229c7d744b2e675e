/**
 * A bounded queue that serves parties round robin, and the entries of each party in FIFO order. When the queue is full, a party
 * with a shorter line displaces the newest entry of the longest line.
 * Invariant: never more than `entriesMax` entries; a party without entries is not stored.
 */
export type Admission<Entry> =
  | { readonly admitted: true; readonly displaced: Entry | undefined }
  | { readonly admitted: false };

interface Line<Entry> {
  readonly entries: Set<Entry>;
  /** Iterator that stays valid between shifts. A new one would pass all deleted entries again. */
  readonly oldest: Iterator<Entry>;
}

export class FairQueue<Entry extends object> {
  readonly #entriesMax: number;
  /** The next party is first. Sets, because an entry is removed from the middle when its caller cancels. */
  readonly #lines = new Map<string, Line<Entry>>();
  #size = 0;

  constructor(entriesMax: number) {
    this.#entriesMax = entriesMax;
  }

  get size(): number {
    return this.#size;
  }

  *[Symbol.iterator](): Iterator<Entry> {
    for (const { entries } of this.#lines.values()) yield* entries;
  }

  admits(party: string): boolean {
    return this.#size < this.#entriesMax || this.#longest(party) !== undefined;
  }

  push(party: string, entry: Entry): Admission<Entry> {
    let displaced: Entry | undefined;
    if (this.#size >= this.#entriesMax) {
      const longest = this.#longest(party);
      if (longest === undefined) return { admitted: false };
      displaced = [...(this.#lines.get(longest)?.entries ?? [])].at(-1) as Entry;
      this.delete(longest, displaced);
    }
    const line = this.#lines.get(party);
    if (line) line.entries.add(entry);
    else {
      const entries = new Set([entry]);
      this.#lines.set(party, { entries, oldest: entries.values() });
    }
    this.#size++;
    return { admitted: true, displaced };
  }

  shift(): Entry | undefined {
    for (const [party, line] of this.#lines) {
      const entry = line.oldest.next().value as Entry;
      this.delete(party, entry);
      // The party moves to the end of the round. A party that returns later also starts at the end.
      if (this.#lines.size > 1 && this.#lines.delete(party)) this.#lines.set(party, line);
      return entry;
    }
    return undefined;
  }

  /** Returns false if the entry is no longer queued. */
  delete(party: string, entry: Entry): boolean {
    const line = this.#lines.get(party);
    if (!line?.entries.delete(entry)) return false;
    this.#size--;
    if (line.entries.size === 0) this.#lines.delete(party);
    return true;
  }

  /** Returns the party with the longest line, if that line is longer than the line of `party` would be with one more entry. */
  #longest(party: string): string | undefined {
    let longest: string | undefined;
    let size = (this.#lines.get(party)?.entries.size ?? 0) + 1;
    for (const [other, { entries }] of this.#lines) {
      if (entries.size <= size) continue;
      longest = other;
      size = entries.size;
    }
    return longest;
  }
}
