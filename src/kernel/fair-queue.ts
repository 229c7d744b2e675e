/**
 * A first-in, first-out queue whose entries may also leave from the middle.
 * Not a Set: a Set with many inserts and deletes is rehashed repeatedly, and old tables retain their entries until a full
 * collection. Not the `shift` or `splice` of an array, which copy a long array.
 * Invariant: while there are entries, neither the first nor the last place is a gap.
 */
export class Fifo<Entry extends object> {
  /** A place is undefined after its entry has left (a gap). Entries begin at `#head`. */
  #places: (Entry | undefined)[] = [];
  #head = 0;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get newest(): Entry | undefined {
    return this.#places.at(-1);
  }

  *[Symbol.iterator](): Iterator<Entry> {
    for (const entry of this.#places) if (entry) yield entry;
  }

  push(entry: Entry): void {
    this.#places.push(entry);
    this.#size++;
  }

  shift(): Entry | undefined {
    const entry = this.#places[this.#head];
    if (entry) this.#clear(this.#head);
    return entry;
  }

  /** Returns false if the entry is not in the queue. The search begins at the oldest entry. */
  delete(entry: Entry): boolean {
    const at = this.#places.indexOf(entry, this.#head);
    if (at < 0) return false;
    this.#clear(at);
    return true;
  }

  #clear(at: number): void {
    const places = this.#places;
    places[at] = undefined;
    this.#size--;
    while (this.#head < places.length && !places[this.#head]) this.#head++;
    while (this.#head < places.length && !places.at(-1)) places.pop();
    if (this.#head < gapsMin || this.#head * 2 < places.length) return;
    this.#places = places.slice(this.#head);
    this.#head = 0;
  }
}

/** Fewer gaps at the beginning are not worth a copy. */
const gapsMin = 64;

export type Admission<Entry> =
  | { readonly admitted: true; readonly displaced: Entry | undefined }
  | { readonly admitted: false };

/**
 * A bounded queue that serves parties round robin, and the entries of each party in FIFO order. When the queue is full, a party
 * with a shorter line displaces the newest entry of the longest line.
 * Invariant: never more than `entriesMax` entries; a party without entries is not stored.
 */
export class FairQueue<Entry extends object> {
  readonly #entriesMax: number;
  /** In the order of service: the party that is served next is first. */
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
