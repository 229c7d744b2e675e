/**
 * Whether a table has a row of a name, for when many are asked for in one tick: a host that opens asks for each of its
 * servers, and of most there is none. From the third on, one question answers all.
 *
 * Invariant: what was read is forgotten with the tick, and with each write, so that rows of another process count too.
 */
const singlyMax = 2;

export class RowNames {
  readonly #read: () => Iterable<string>;
  #asked = 0;
  #names: ReadonlySet<string> | undefined;

  constructor(read: () => Iterable<string>) {
    this.#read = read;
  }

  /** False: there is none. True: it is worth looking. */
  mayHave(name: string): boolean {
    if (this.#asked++ === 0) queueMicrotask(() => this.#forget());
    if (this.#asked <= singlyMax) return true;
    this.#names ??= new Set(this.#read());
    return this.#names.has(name);
  }

  /** A row was written. */
  changed(): void {
    this.#names = undefined;
  }

  #forget(): void {
    this.#asked = 0;
    this.#names = undefined;
  }
}
