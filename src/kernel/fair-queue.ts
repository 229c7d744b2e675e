/**
 * Who is next, when several parties wait: each party in turn, and first come, first served within a party.
 * A party that has waited in vain for a place because another fills the queue gets one: the newest entry of the longest
 * line makes room. So a flood displaces itself.
 * Not here: what an entry is, and when it has waited long enough (concurrency.ts).
 *
 * Invariant: never more than `entriesMax` entries; a party without entries is not remembered.
 */
export type Admittance<Entry> =
  | { readonly admitted: true; readonly displaced: Entry | undefined }
  | { readonly admitted: false };

export class FairQueue<Entry extends object> {
  readonly #entriesMax: number;
  /** The next party first. Sets, because an entry leaves from the middle when its caller does. */
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
      // To the end of the round; a party that comes back later does not keep a place in it.
      if (this.#lines.delete(party)) this.#lines.set(party, line);
      return entry;
    }
    return undefined;
  }

  /** False when it was not waiting any more. */
  delete(party: string, entry: Entry): boolean {
    const line = this.#lines.get(party);
    if (!line?.delete(entry)) return false;
    this.#size--;
    if (line.size === 0) this.#lines.delete(party);
    return true;
  }

  /** Takes the newest entry of the longest line, unless that would only turn the tables. */
  #makeRoom(ownLength: number): Entry | undefined {
    let longest: [string, Set<Entry>] | undefined;
    for (const line of this.#lines) if (line[1].size > (longest?.[1].size ?? ownLength + 1)) longest = line;
    const newest = longest && [...longest[1]].at(-1);
    if (longest && newest) this.delete(longest[0], newest);
    return newest;
  }
}
