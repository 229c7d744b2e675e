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
  readonly #text: string;
  readonly #isReversed: boolean;
  /** Made for the first comparison: of many texts that would be searched for, most never are. */
  #codes: Uint16Array | undefined;
  /** From here on it is compared first, to the right; then what lies before it, to the left. Found when it is needed. */
  #cut = -1;
  /** How far it may move when the right part fits. */
  #period = 0;
  /** What is known to fit after such a move: all but the period, if the text repeats itself; else nothing. */
  #overlap = 0;

  /** `isReversed`: it is searched for in a text that is read backwards. */
  constructor(text: string, isReversed = false) {
    this.#text = text;
    this.#isReversed = isReversed;
    this.length = text.length;
    const slash = isReversed ? text.lastIndexOf('/') : text.indexOf('/');
    this.slashAt = isReversed && slash >= 0 ? text.length - 1 - slash : slash;
  }

  isAt(codes: Uint16Array, at: number, end: number, meter: Meter): boolean {
    const { length } = this;
    if (at + length > end) return false;
    const wanted = this.#made();
    let i = 0;
    while (i < length && codes[at + i] === wanted[i]) i++;
    meter.steps += i;
    return i === length;
  }

  /** Where it begins that comes first at or after `from`, and ends by `end`; -1 when there is none. */
  find(codes: Uint16Array, from: number, end: number, meter: Meter): number {
    const { length } = this;
    if (from + length > end) return -1;
    const wanted = this.#made();
    if (this.#cut < 0) this.#factorise(wanted);
    const cut = this.#cut;
    const pivot = wanted[cut];
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
      while (i < length && wanted[i] === codes[at + i]) i++;
      steps += i - first;
      if (i < length) {
        steps++;
        at += i - cut + 1;
        known = 0;
        continue;
      }
      let j = cut - 1;
      while (j >= known && wanted[j] === codes[at + j]) j--;
      steps += cut - 1 - j;
      if (j < known) break;
      steps++;
      at += this.#period;
      known = this.#overlap;
    }
    meter.steps += steps;
    return at <= lastStart ? at : -1;
  }

  #made(): Uint16Array {
    if (!this.#codes) {
      this.#codes = codesOf(this.#text);
      if (this.#isReversed) this.#codes.reverse();
    }
    return this.#codes;
  }

  #factorise(codes: Uint16Array): void {
    const { length } = this;
    const [less, lessPeriod] = maximalSuffix(codes, false);
    const [more, morePeriod] = maximalSuffix(codes, true);
    this.#cut = Math.max(less, more);
    const period = less > more ? lessPeriod : morePeriod;
    let i = 0;
    while (i < this.#cut && codes[i] === codes[period + i]) i++;
    const isPeriodic = i === this.#cut;
    this.#period = isPeriodic ? period : Math.max(this.#cut, length - this.#cut) + 1;
    this.#overlap = isPeriodic ? length - period : 0;
  }
}

export function codesOf(text: string): Uint16Array {
  const codes = new Uint16Array(text.length);
  for (let i = 0; i < text.length; i++) codes[i] = text.charCodeAt(i);
  return codes;
}

/** Where the suffix begins that is the last in alphabetical order, or in the opposite one, and its period. */
function maximalSuffix(codes: Uint16Array, isOpposite: boolean): [start: number, period: number] {
  let start = 0;
  let candidate = 1;
  let offset = 0;
  let period = 1;
  while (candidate + offset < codes.length) {
    const a = codes[candidate + offset] as number;
    const b = codes[start + offset] as number;
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
  return [start, period];
}
