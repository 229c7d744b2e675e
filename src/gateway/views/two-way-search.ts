/**
 * Finds one text in another by the two-way algorithm of Crochemore and Perrin (1991), as C libraries do for `memmem`: linear
 * whatever the texts are, and with no table to follow, so that a comparison does not wait for the one before it.
 * Texts are codes of characters; the one to find is never empty.
 *
 * Invariant: at most two comparisons per code that is looked through.
 */

/** Counts comparisons. */
export interface Meter {
  steps: number;
}

export class SearchText {
  readonly length: number;
  /** Where its first slash is; -1 without one. */
  readonly slashAt: number;
  /** Shared with the other texts of its template: an array of its own would cost more than most searches. */
  readonly #codes: Uint16Array;
  readonly #start: number;
  /** From here on it is compared first, to the right; then what lies before it, to the left. Found when it is needed. */
  #cut = -1;
  /** How far it may move when the right part fits. */
  #period = 1;
  /** What is known to fit after such a move: all but the period, if the text repeats itself; else nothing. */
  #overlap = 0;

  /** The codes from `start` to `end`. */
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

  /** Where it begins that comes first at or after `from`, and ends by `end`; -1 when there is none. */
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
      // Nearly always the very first comparison fails: a loop of its own is several times as fast.
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
    // The longer cut first: it is the upper half of the number.
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
 * Where the suffix begins that is the last in alphabetical order, or in the opposite one, and its period: as one number, since
 * this is done for every literal of a thousand templates. The period is below `periodsMax`.
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
