/**
 * Decides whether a URI may be an expansion of a URI template (RFC 6570). The match selects a server, which then checks the
 * URI. `{var}` matches any text without a slash. `{+var}` and the other operators match any text. A `{var}` between two
 * operator expressions may also match slashes, because excluding them would need backtracking.
 * Invariant: for all texts, a match takes at most two comparisons per character of the URI and one per character of the
 * template. Literals are searched by `SearchText`, because `indexOf` is quadratic for some texts.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';

const templateCharsMax = 2_048;
export const uriCharsMax = 8_192;
export const expressionsMax = 32;

type Expression = 'segment' | 'anything';
type TemplatePart = { readonly literal: string } | Expression;

/** Literals from one end of the URI inwards, reversed on the right side. `hasGap`: a `{var}` precedes the literal. */
type Side = readonly { readonly literal: SearchText; readonly hasGap: boolean }[];

interface Pattern {
  readonly left: Side;
  /** Literals between operator expressions, in order. */
  readonly middle: readonly SearchText[];
  readonly right: Side;
  /** The expression between both sides; undefined for a template without expressions. */
  readonly between: Expression | undefined;
}

/** A URI that is matched against many templates. */
export class UriText {
  readonly meter: Meter = { steps: 0 };
  #forward: Reading | undefined;
  #backward: Reading | undefined;

  constructor(readonly text: string) {}

  get forward(): Reading {
    this.#forward ??= readingOf(codesOf(this.text));
    return this.#forward;
  }

  get backward(): Reading {
    this.#backward ??= readingOf(codesOf(this.text).reverse());
    return this.#backward;
  }
}

/** The URI, read forward or backward. */
interface Reading {
  readonly codes: Uint16Array;
  /** `nextSlash[i]`: index of the first slash at or after i, or the URI length. */
  readonly nextSlash: Uint16Array;
}

export class UriTemplate {
  /** The literal that every URI of this template begins with. */
  readonly head: string;
  readonly #parts: readonly TemplatePart[];
  /** Compiled lazily, for the first URI that starts with `head`. */
  #pattern: Pattern | undefined;

  private constructor(parts: readonly TemplatePart[]) {
    const [first] = parts;
    this.head = typeof first === 'object' ? first.literal : '';
    this.#parts = parts;
  }

  /** Returns undefined for a text that is not a template or exceeds the limits. */
  static parse(text: string): UriTemplate | undefined {
    const parts = text.length > templateCharsMax ? undefined : partsOf(text);
    return parts && new UriTemplate(parts);
  }

  matches(uri: UriText): boolean {
    const { text } = uri;
    if (text.length > uriCharsMax || !text.startsWith(this.head)) return false;
    this.#pattern ??= compile(this.#parts);
    const { left, middle, right, between } = this.#pattern;
    const { length } = text;
    if (between === undefined) return length === this.head.length;
    const { meter, forward } = uri;
    let at = consume(forward, left, length, meter);
    if (at < 0) return false;
    const consumed = consume(uri.backward, right, length - at, meter);
    if (consumed < 0) return false;
    const end = length - consumed;
    if (between === 'segment') return (forward.nextSlash[at] as number) >= end;
    for (const literal of middle) {
      at = literal.find(forward.codes, at, end, meter);
      if (at < 0) return false;
      at += literal.length;
    }
    return true;
  }
}

function partsOf(text: string): TemplatePart[] | undefined {
  const parts: TemplatePart[] = [];
  let expressions = 0;
  let at = 0;
  while (at < text.length) {
    const open = text.indexOf('{', at);
    const literal = text.slice(at, open < 0 ? text.length : open);
    if (literal.includes('}')) return undefined;
    if (literal !== '') parts.push({ literal });
    if (open < 0) break;
    const close = text.indexOf('}', open);
    if (close <= open + 1 || ++expressions > expressionsMax) return undefined;
    const expression = isVariable.test(text[open + 1] as string) ? 'segment' : 'anything';
    // Two adjacent expressions match like the wider one.
    const before = parts.at(-1);
    if (typeof before === 'string') parts[parts.length - 1] = before === 'anything' ? before : expression;
    else parts.push(expression);
    at = close + 1;
  }
  return parts;
}

/** Matches the first character of an expression whose expansion has no slash: a plain `{var}` or `{.var}`. */
const isVariable = /[A-Za-z0-9_%.]/;

function compile(parts: readonly TemplatePart[]): Pattern {
  const widest: Expression = parts.includes('anything') ? 'anything' : 'segment';
  const last = parts.lastIndexOf(widest);
  if (last < 0) return { left: [], middle: [], right: [], between: undefined };
  // If every expression is a `segment`, everything up to the last one is matched from the left. Taking the first match of each
  // literal leaves the most text for the following literals.
  const first = widest === 'anything' ? parts.indexOf(widest) : last;
  const literals = new Literals(
    parts.reduce((sum, part) => sum + (typeof part === 'object' ? part.literal.length : 0), 0),
  );
  const left: Side[number][] = [];
  const middle: SearchText[] = [];
  const right: Side[number][] = [];
  for (let i = 0; i < parts.length; i++) {
    const part = parts[i] as TemplatePart;
    if (typeof part === 'string') continue;
    if (i < first) left.push({ literal: literals.add(part.literal), hasGap: parts[i - 1] === 'segment' });
    else if (i < last) middle.push(literals.add(part.literal));
  }
  for (let i = parts.length - 1; i > last; i--) {
    const part = parts[i] as TemplatePart;
    if (typeof part === 'string') continue;
    right.push({ literal: literals.addReversed(part.literal), hasGap: parts[i + 1] === 'segment' });
  }
  return { left, middle, right, between: widest };
}

/** The literals of one template, in one array. */
class Literals {
  readonly #codes: Uint16Array;
  #end = 0;

  constructor(chars: number) {
    this.#codes = new Uint16Array(chars);
  }

  add(text: string): SearchText {
    const start = this.#end;
    for (let i = 0; i < text.length; i++) this.#codes[this.#end++] = text.charCodeAt(i);
    return new SearchText(this.#codes, start, this.#end, text.indexOf('/'));
  }

  addReversed(text: string): SearchText {
    const start = this.#end;
    for (let i = text.length - 1; i >= 0; i--) this.#codes[this.#end++] = text.charCodeAt(i);
    const slash = text.lastIndexOf('/');
    return new SearchText(this.#codes, start, this.#end, slash < 0 ? -1 : text.length - 1 - slash);
  }
}

function codesOf(text: string): Uint16Array {
  const codes = new Uint16Array(text.length);
  for (let i = 0; i < text.length; i++) codes[i] = text.charCodeAt(i);
  return codes;
}

const SLASH = 0x2f;

function readingOf(codes: Uint16Array): Reading {
  const { length } = codes;
  const nextSlash = new Uint16Array(length + 1);
  nextSlash[length] = length;
  for (let i = length - 1; i >= 0; i--) nextSlash[i] = codes[i] === SLASH ? i : (nextSlash[i + 1] as number);
  return { codes, nextSlash };
}

/** Matches one side. Returns the smallest number of characters that it can take, or -1 if it does not match within `end`. */
function consume({ codes, nextSlash }: Reading, side: Side, end: number, meter: Meter): number {
  let at = 0;
  for (const { literal, hasGap } of side) {
    const start = hasGap ? startInSegment(codes, nextSlash[at] as number, literal, at, end, meter) : at;
    if (start < 0) return -1;
    // `find` has already compared this literal.
    const isFound = hasGap && literal.slashAt < 0;
    if (!isFound && !literal.isAt(codes, start, end, meter)) return -1;
    at = start + literal.length;
  }
  return at;
}

/** The first index at which the literal may begin without a slash between `at` and it, or -1. */
function startInSegment(
  codes: Uint16Array,
  slash: number,
  literal: SearchText,
  at: number,
  end: number,
  meter: Meter,
): number {
  if (literal.slashAt < 0) return literal.find(codes, at, Math.min(slash, end), meter);
  // The first slash of the literal must be the next slash of the URI, so only one index is possible.
  const start = slash - literal.slashAt;
  return start >= at ? start : -1;
}

/** Characters that are matched in one tick of the event loop. */
export const charsPerTurn = 8_192;

/**
 * Spreads the matching of long URIs over ticks of the event loop. One message may contain a hundred URIs, each matched against
 * a thousand templates. One tick matches at most `charsPerTurn` characters, or one longer URI.
 */
export class MatchPacer {
  #left = charsPerTurn;

  /** Undefined: match now. Otherwise call again when the promise resolves. */
  wait(chars: number): Promise<void> | undefined {
    const isFirst = this.#left === charsPerTurn;
    if (chars > this.#left && !isFirst) return nextTurn();
    if (isFirst)
      setImmediate(() => {
        this.#left = charsPerTurn;
      });
    this.#left = Math.max(0, this.#left - chars);
    return undefined;
  }
}

/** Number of comparisons. */
export interface Meter {
  steps: number;
}

/**
 * Substring search by the two-way algorithm of Crochemore and Perrin (1991), which C libraries use for `memmem`. It is linear
 * for all texts, and needs no table, so a comparison does not wait for the previous one.
 * Texts are arrays of character codes; the text to find is never empty.
 * Invariant: a search makes at most two comparisons per code of the searched text.
 */
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
      // The first comparison nearly always fails. A separate loop for it is several times as fast as the loop below.
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
