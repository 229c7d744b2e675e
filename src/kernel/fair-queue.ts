/**
 * A bounded queue that is fair between parties: round robin between them, first in, first out within one. When the queue is full, a
 * new entry of another party displaces the newest entry of the longest line, so that a flood displaces itself.
 * Not here: what an entry is, and how long it may wait (the users).
 *
 * Invariant: at most `entriesMax` entries; a party without entries takes no memory.
 */
type Admittance<Entry> =
  | { readonly admitted: true; readonly displaced: Entry | undefined }
  | { readonly admitted: false };

export class FairQueue<Entry extends object> {
  readonly #entriesMax: number;
  /** The next party first. Sets, because a cancelled entry leaves from the middle. */
  readonly #lines = new Map<string, Set<Entry>>();
  #size = 0;

  constructor(entriesMax: number) {
    this.#entriesMax = entriesMax;
  }

  get size(): number {
    return this.#size;
  }

  push(party: string, entry: Entry): Admittance<Entry> {
    let displaced: Entry | undefined;
    if (this.#size >= this.#entriesMax) {
      displaced = this.#makeRoom(this.#lines.get(party)?.size ?? 0);
      if (displaced === undefined) return { admitted: false };
    }
    const line = this.#lines.get(party);
    if (line) line.add(entry);
    else this.#lines.set(party, new Set([entry]));
    this.#size++;
    return { admitted: true, displaced };
  }

  shift(): Entry | undefined {
    for (const [party, line] of this.#lines) {
      const [entry] = line;
      if (entry === undefined) break;
      this.delete(party, entry);
      // To the end of the round, unless this was its last entry.
      if (this.#lines.delete(party)) this.#lines.set(party, line);
      return entry;
    }
    return undefined;
  }

  /** False when the entry is not in the queue. */
  delete(party: string, entry: Entry): boolean {
    const line = this.#lines.get(party);
    if (!line?.delete(entry)) return false;
    this.#size--;
    if (line.size === 0) this.#lines.delete(party);
    return true;
  }

  /** Removes the newest entry of the longest line, unless that line would then be the shorter one. */
  #makeRoom(ownLength: number): Entry | undefined {
    let longest: [string, Set<Entry>] | undefined;
    for (const line of this.#lines) if (line[1].size > (longest?.[1].size ?? ownLength + 1)) longest = line;
    const newest = longest && [...longest[1]].at(-1);
    if (longest && newest) this.delete(longest[0], newest);
    return newest;
  }
}
