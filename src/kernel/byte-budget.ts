/** Counts bytes in use against a maximum: queued frames, open requests, buffered bodies. Several users may share one budget. */
export class ByteBudget {
  readonly max: number;
  #used = 0;

  constructor(max: number) {
    this.max = max;
  }

  get used(): number {
    return this.#used;
  }

  /** Returns false and counts nothing if the bytes would exceed the maximum. */
  take(bytes: number): boolean {
    if (this.#used + bytes > this.max) return false;
    this.#used += bytes;
    return true;
  }

  release(bytes: number): void {
    this.#used -= bytes;
  }
}
