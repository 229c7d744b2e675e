/**
 * A first-in, first-out queue whose entries may also leave from the middle.
 * Not a Set: a Set with many inserts and deletes is rehashed repeatedly, and old tables retain their entries until a full
 * collection. Not the `shift` or `splice` of an array, which copy a long array.
 * Invariant: while there are entries, neither the first nor the last place is a gap.
 */
export class Fifo<Entry extends object> {
  /** Undefined: a gap, because the entry has left. Entries begin at `#head`. */
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

  /** Returns false if the entry is not in the queue. Quick at the beginning; an entry further on is searched for. */
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
