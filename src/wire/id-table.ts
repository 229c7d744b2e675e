/**
 * A table for ids that are assigned in order and mostly removed soon: pending requests.
 * Not a Map: a Map with many inserts and deletes is rehashed repeatedly, and old tables retain their entries until a full
 * collection. At 200,000 calls per second that halved the rate.
 * Invariant: at most half of the slots are used, so the slot of a new id is nearly always free. If not, a Map stores the id.
 */
const slotsMin = 64;

export class IdTable<T> {
  #slots: (T | undefined)[] = new Array(slotsMin).fill(undefined);
  /** -1: the slot is free. */
  #ids: number[] = new Array(slotsMin).fill(-1);
  #mask = slotsMin - 1;
  #inSlots = 0;
  readonly #others = new Map<number, T>();

  get size(): number {
    return this.#inSlots + this.#others.size;
  }

  get(id: number): T | undefined {
    const at = id & this.#mask;
    return this.#ids[at] === id ? this.#slots[at] : this.#others.get(id);
  }

  /** The id must be an integer that is not in the table. */
  set(id: number, value: T): void {
    if (this.#inSlots * 2 >= this.#slots.length) this.#grow();
    const at = id & this.#mask;
    if (this.#ids[at] !== -1) {
      this.#others.set(id, value);
      return;
    }
    this.#ids[at] = id;
    this.#slots[at] = value;
    this.#inSlots++;
  }

  delete(id: number): boolean {
    const at = id & this.#mask;
    if (this.#ids[at] !== id || this.#slots[at] === undefined) return this.#others.delete(id);
    this.#ids[at] = -1;
    this.#slots[at] = undefined;
    this.#inSlots--;
    return true;
  }

  /** Returns a copy, sorted by id. */
  values(): T[] {
    const found: [id: number, value: T][] = [...this.#others];
    for (let at = 0; at < this.#slots.length; at++) {
      const id = this.#ids[at] as number;
      if (id !== -1) found.push([id, this.#slots[at] as T]);
    }
    return found.sort(([a], [b]) => a - b).map(([, value]) => value);
  }

  /** Visits in no particular order; `visit` must not change the table. */
  forEach(visit: (value: T) => void): void {
    for (const value of this.#others.values()) visit(value);
    if (this.#inSlots === 0) return;
    for (const value of this.#slots) if (value !== undefined) visit(value);
  }

  #grow(): void {
    const ids = this.#ids;
    const slots = this.#slots;
    const size = slots.length * 2;
    this.#ids = new Array(size).fill(-1);
    this.#slots = new Array(size).fill(undefined);
    this.#mask = size - 1;
    this.#inSlots = 0;
    for (let at = 0; at < slots.length; at++) {
      const id = ids[at] as number;
      if (id !== -1) this.set(id, slots[at] as T);
    }
  }
}
