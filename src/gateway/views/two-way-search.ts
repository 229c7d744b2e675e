/**
 * Substring search by the two-way algorithm of Crochemore and Perrin (1991), which C libraries use for `memmem`. It is linear
 * for all texts, and needs no table, so a comparison does not wait for the previous one.
 * Texts are arrays of character codes; the text to find is never empty.
 * Invariant: a search makes at most two comparisons per code of the searched text.
 */

/** Number of comparisons. */
export interface Meter {
  steps: number;
}

export class SearchText {
  readonly length: number;
  /** Index of the first slash, or -1. */
  readonly slashAt: number;
  /** One array for all literals of a template: an array per literal would cost more than most searches. */
  readonly #codes: Uint16Array;
  readonly #start: number;
  /** The critical position: codes to the right of it are compared first, then codes to the left. Computed lazily. */
  #cut = -1;
  /** How far the search advances if the right part matches and the left part does not. */
  #period = 1;
  /** Codes that are known to match after such a step: all but the period if the text is periodic, else 0. */
  #overlap = 0;

  /** The text to find is the part of `codes` from `start` to `end`. */
  constructor(codes: Uint16Array, start: number, end: number, slashAt: number) {
    this.#codes = codes;
    this.#start = start;
    this.length = end - start;
    this.slashAt = slashAt;
  }

  isAt(codes: Uint16Array, at: number, end: number, meter: Meter): boolean {
    const { length } = this;
    if (at + length > end) return false;
    const wanted = this.#codes;
    const start = this.#start;
    let i = 0;
    while (i < length && codes[at + i] === wanted[start + i]) i++;
    meter.steps += i;
    return i === length;
  }

  /** Index of the first occurrence that begins at or after `from` and ends by `end`, or -1. */
  find(codes: Uint16Array, from: number, end: number, meter: Meter): number {
    const { length } = this;
    if (from + length > end) return -1;
    if (this.#cut < 0) this.#factorise();
    const wanted = this.#codes;
    const start = this.#start;
    const cut = this.#cut;
    const pivot = wanted[start + cut];
    const lastStart = end - length;
    let steps = 0;
    let known = 0;
    let at = from;
    while (at <= lastStart) {
      // The first comparison nearly always fails. A separate loop for it is several times as fast.
      if (known === 0) {
        const before = at;
        while (at <= lastStart && codes[at + cut] !== pivot) at++;
        steps += at - before;
        if (at > lastStart) break;
      }
      const first = Math.max(known, cut);
      let i = first;
      while (i < length && wanted[start + i] === codes[at + i]) i++;
      steps += i - first;
      if (i < length) {
        steps++;
        at += i - cut + 1;
        known = 0;
        continue;
      }
      let j = cut - 1;
      while (j >= known && wanted[start + j] === codes[at + j]) j--;
      steps += cut - 1 - j;
      if (j < known) break;
      steps++;
      at += this.#period;
      known = this.#overlap;
    }
    meter.steps += steps;
    return at <= lastStart ? at : -1;
  }

  #factorise(): void {
    const codes = this.#codes;
    const start = this.#start;
    const { length } = this;
    const less = maximalSuffix(codes, start, length, false);
    const more = maximalSuffix(codes, start, length, true);
    // `Math.max` selects the longer cut, which is the upper half of the number.
    const both = Math.max(less, more);
    const cut = Math.floor(both / periodsMax);
    const period = both % periodsMax;
    let i = 0;
    while (i < cut && codes[start + i] === codes[start + period + i]) i++;
    const isPeriodic = i === cut;
    this.#cut = cut;
    this.#period = isPeriodic ? period : Math.max(cut, length - cut) + 1;
    this.#overlap = isPeriodic ? length - period : 0;
  }
}

const periodsMax = 65_536;

/**
 * Start and period of the greatest suffix in alphabetical order, or in the reverse order. Both are returned as one number to
 * avoid an object for each literal of a thousand templates. The period is below `periodsMax`.
 */
function maximalSuffix(codes: Uint16Array, from: number, length: number, isOpposite: boolean): number {
  let start = 0;
  let candidate = 1;
  let offset = 0;
  let period = 1;
  while (candidate + offset < length) {
    const a = codes[from + candidate + offset] as number;
    const b = codes[from + start + offset] as number;
    if (a === b) {
      if (++offset === period) {
        candidate += period;
        offset = 0;
      }
    } else if (a < b !== isOpposite) {
      candidate += offset + 1;
      offset = 0;
      period = candidate - start;
    } else {
      start = candidate++;
      offset = 0;
      period = 1;
    }
  }
  return start * periodsMax + period;
}
