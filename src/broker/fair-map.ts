/**
 * What senders said of ids of theirs, bounded for all together. Past the bound, whoever has most in it loses its oldest: who floods
 * pushes out nobody but itself.
 */
export class FairMap<Value> {
  readonly #max: number;
  /** Of each, oldest first; nobody without any. */
  readonly #bySender = new Map<string, Map<string, Value>>();
  #size = 0;

  constructor(max: number) {
    this.#max = max;
  }

  get size(): number {
    return this.#size;
  }

  /** As the newest of its sender. */
  set(sender: string, id: string, value: Value): void {
    this.take(sender, id);
    if (this.#size >= this.#max) this.#dropOne();
    const own = this.#bySender.get(sender) ?? new Map<string, Value>();
    own.set(id, value);
    this.#bySender.set(sender, own);
    this.#size++;
  }

  /** What was said, and still is. */
  get(sender: string, id: string): Value | undefined {
    return this.#bySender.get(sender)?.get(id);
  }

  /** What was said, once. */
  take(sender: string, id: string): Value | undefined {
    const own = this.#bySender.get(sender);
    const value = own?.get(id);
    if (!own?.delete(id)) return undefined;
    this.#size--;
    if (own.size === 0) this.#bySender.delete(sender);
    return value;
  }

  clear(): void {
    this.#bySender.clear();
    this.#size = 0;
  }

  #dropOne(): void {
    let most: [sender: string, own: Map<string, Value>] | undefined;
    for (const each of this.#bySender) if (!most || each[1].size > most[1].size) most = each;
    const [oldest] = most?.[1].keys() ?? [];
    if (most && oldest !== undefined) this.take(most[0], oldest);
  }
}
