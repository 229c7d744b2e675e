/** How fast something may come, on average and at once. What comes faster is told how long to wait; nothing is lost. */
export class TokenBucket {
  readonly #perMs: number;
  readonly #burst: number;
  #tokens: number;
  #atMs: number;

  constructor({ perSecond, burst }: { readonly perSecond: number; readonly burst: number }, nowMs: number) {
    this.#perMs = perSecond / 1_000;
    this.#burst = burst;
    this.#tokens = burst;
    this.#atMs = nowMs;
  }

  /** 0 when one was taken, else how long until there is one. */
  take(nowMs: number): number {
    this.#tokens = Math.min(this.#burst, this.#tokens + (nowMs - this.#atMs) * this.#perMs);
    this.#atMs = nowMs;
    if (this.#tokens < 1) return (1 - this.#tokens) / this.#perMs;
    this.#tokens--;
    return 0;
  }
}
