/**
 * What is kept by ids that are given out in order and mostly taken back soon: the requests a peer is owed.
 * Not a Map: one that is filled and emptied without end is copied again and again, and each copy, once old, holds on to the
 * next and to all that was in it until a full collection. At two hundred thousand calls a second that halved their rate.
 *
 * Invariant: at most half of the places are taken, so that a new id nearly always finds its own free; one that does not goes
 * where the long-lived ones are kept.
 */
const placesMin = 64;

export class IdTable<T> {
  #places: (T | undefined)[] = new Array(placesMin).fill(undefined);
  /** -1 where nothing is. */
  #ids: number[] = new Array(placesMin).fill(-1);
  #mask = placesMin - 1;
  #inPlace = 0;
  readonly #others = new Map<number, T>();

  get size(): number {
    return this.#inPlace + this.#others.size;
  }

  get(id: number): T | undefined {
    const at = id & this.#mask;
    return this.#ids[at] === id ? this.#places[at] : this.#others.get(id);
  }

  /** The id must be a whole number that is not in it. */
  set(id: number, value: T): void {
    if (this.#inPlace * 2 >= this.#places.length) this.#grow();
    const at = id & this.#mask;
    if (this.#ids[at] !== -1) {
      this.#others.set(id, value);
      return;
    }
    this.#ids[at] = id;
    this.#places[at] = value;
    this.#inPlace++;
  }

  delete(id: number): boolean {
    const at = id & this.#mask;
    if (this.#ids[at] !== id || this.#places[at] === undefined) return this.#others.delete(id);
    this.#ids[at] = -1;
    this.#places[at] = undefined;
    this.#inPlace--;
    return true;
  }

  /** As they are now; what happens to the table meanwhile does not change them. In the order of their ids. */
  values(): T[] {
    const found: [id: number, value: T][] = [...this.#others];
    for (let at = 0; at < this.#places.length; at++) {
      const id = this.#ids[at] as number;
      if (id !== -1) found.push([id, this.#places[at] as T]);
    }
    return found.sort(([a], [b]) => a - b).map(([, value]) => value);
  }

  /** In no order; `visit` must leave the table as it is. */
  forEach(visit: (value: T) => void): void {
    for (const value of this.#others.values()) visit(value);
    if (this.#inPlace === 0) return;
    for (const value of this.#places) if (value !== undefined) visit(value);
  }

  #grow(): void {
    const ids = this.#ids;
    const places = this.#places;
    const size = places.length * 2;
    this.#ids = new Array(size).fill(-1);
    this.#places = new Array(size).fill(undefined);
    this.#mask = size - 1;
    this.#inPlace = 0;
    for (let at = 0; at < places.length; at++) {
      const id = ids[at] as number;
      if (id !== -1) this.set(id, places[at] as T);
    }
  }
}
