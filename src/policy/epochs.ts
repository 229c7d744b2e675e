/**
 * Counts what was dropped, so that an answer which was asked for before a drop is not kept after it: take the epoch of a key
 * when you ask, and compare it when the answer comes in.
 *
 * Invariant: once a key was advanced, none of its epochs from before is ever current again. At most `keysMax` keys are
 * remembered one by one; past it all move on together, and at worst an answer on its way is not kept.
 */
export class Epochs {
  readonly #keysMax: number;
  readonly #ofKeys = new Map<string, number>();
  #newest = 0;
  /** Of every key that is not in the map. */
  #common = 0;

  constructor(keysMax: number) {
    this.#keysMax = keysMax;
  }

  /** Of no key: later than every epoch there is, and earlier than every one to come. For who wants to look up nothing yet. */
  get now(): number {
    return this.#newest;
  }

  /** Whether the key was not advanced since this was `now`. */
  isAsAt(key: string, now: number): boolean {
    return this.of(key) <= now;
  }

  of(key: string): number {
    return this.#ofKeys.get(key) ?? this.#common;
  }

  advance(key: string): void {
    if (this.#ofKeys.size >= this.#keysMax && !this.#ofKeys.has(key)) this.advanceAll();
    this.#ofKeys.set(key, ++this.#newest);
  }

  advanceAll(): void {
    this.#ofKeys.clear();
    this.#common = ++this.#newest;
  }
}
