/**
 * Reads one page of a list in slices, so that the caller can yield to the event loop between them. A page is refused as soon as
 * a limit is exceeded; the rest is not read. Not here: limits over all pages of a list (session/lists.ts).
 * Invariants: a slice ends after the element or member that brings it to `sliceBytes`. Elements and members have size limits, so
 * a slice is bounded. A duplicate key has no value. A page that is not an object, or has more than `LIMITS.members` members, has no
 * elements.
 */
import { LIMITS } from '../kernel/limits.js';
import { keyIs } from './json-members.js';
import { keyEndBefore, skipKey, skipSpace, skipValue } from './json-scan.js';

export interface PageLimits {
  readonly sliceBytes: number;
  readonly elementBytes: number;
  readonly elements: number;
  /** Maximum size of one member beside the list. */
  readonly memberBytes: number;
}

export type PageFault = 'element_too_large' | 'too_many_elements' | 'member_too_large';

export interface Page {
  /** Start and end of each object of the list, two numbers each. */
  readonly bounds: readonly number[];
  /** Views, in the order of the requested keys. */
  readonly members: readonly (Buffer | undefined)[];
}

const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const COMMA = 0x2c;

/** Cost of an element in addition to its bytes. */
const elementBytes = 16;

export function* walkPage(
  bytes: Buffer,
  listKey: string,
  keys: readonly string[],
  limits: PageLimits,
): Generator<undefined, Page | PageFault> {
  return yield* new PageWalk(bytes, limits).walk(listKey, keys);
}

class PageWalk {
  readonly #bytes: Buffer;
  readonly #limits: PageLimits;
  readonly #bounds: number[] = [];
  #elementCount = 0;
  #at = 0;
  #sliceStart = 0;
  #fault: PageFault | undefined;

  constructor(bytes: Buffer, limits: PageLimits) {
    this.#bytes = bytes;
    this.#limits = limits;
  }

  *walk(listKey: string, keys: readonly string[]): Generator<undefined, Page | PageFault> {
    const bytes = this.#bytes;
    const members = keys.map((): Buffer | undefined => undefined);
    const counts = keys.map(() => 0);
    const none: Page = { bounds: [], members: keys.map(() => undefined) };
    let lists = 0;
    if (!this.#passes(OPEN_BRACE)) return none;
    if (this.#passes(CLOSE_BRACE)) return none;
    for (let count = 1; count <= LIMITS.members; count++) {
      const keyStart = skipSpace(bytes, this.#at, bytes.length) + 1;
      const afterKey = skipKey(bytes, keyStart - 1, bytes.length);
      if (afterKey < 0) return none;
      const keyEnd = keyEndBefore(bytes, afterKey);
      const start = skipSpace(bytes, afterKey, bytes.length);
      this.#at = start;
      const isList = keyIs(bytes, keyStart, keyEnd, listKey);
      // A duplicate list has no elements.
      if (isList && ++lists > 1) this.#bounds.length = 0;
      const isWhole =
        isList && bytes[start] === OPEN_BRACKET
          ? yield* this.#elements(lists === 1)
          : this.#skip(this.#limits.memberBytes, 'member_too_large');
      if (!isWhole) return this.#fault ?? none;
      for (let k = 0; k < keys.length; k++) {
        if (!keyIs(bytes, keyStart, keyEnd, keys[k] as string)) continue;
        members[k] = counts[k] ? undefined : bytes.subarray(start, this.#at);
        counts[k] = 1;
      }
      if (this.#passes(CLOSE_BRACE)) return { bounds: lists === 1 ? this.#bounds : [], members };
      if (!this.#passes(COMMA)) return none;
      if (this.#isSliceOver()) yield;
    }
    return none;
  }

  *#elements(isKept: boolean): Generator<undefined, boolean> {
    this.#passes(OPEN_BRACKET);
    if (this.#passes(CLOSE_BRACKET)) return true;
    for (;;) {
      if (++this.#elementCount > this.#limits.elements) return this.#refuse('too_many_elements');
      const start = skipSpace(this.#bytes, this.#at, this.#bytes.length);
      this.#at = start;
      if (!this.#skip(this.#limits.elementBytes, 'element_too_large')) return false;
      if (isKept && this.#bytes[start] === OPEN_BRACE) this.#bounds.push(start, this.#at);
      if (this.#passes(CLOSE_BRACKET)) return true;
      if (!this.#passes(COMMA)) return false;
      if (this.#isSliceOver()) yield;
    }
  }

  /** Skips one value and reads at most `bytesMax` + 1 bytes of it. */
  #skip(bytesMax: number, fault: PageFault): boolean {
    const end = Math.min(this.#bytes.length, this.#at + bytesMax + 1);
    const after = skipValue(this.#bytes, this.#at, end, 0);
    // If `end` cuts the value off, skipValue fails, or for a number stops at `end`. Both mean: too large.
    if (after < 0 ? end < this.#bytes.length : after - this.#at > bytesMax) return this.#refuse(fault);
    if (after < 0) return false;
    this.#at = after;
    return true;
  }

  #refuse(fault: PageFault): false {
    this.#fault = fault;
    return false;
  }

  #passes(byte: number): boolean {
    const at = skipSpace(this.#bytes, this.#at, this.#bytes.length);
    if (at >= this.#bytes.length || this.#bytes[at] !== byte) return false;
    this.#at = at + 1;
    return true;
  }

  #isSliceOver(): boolean {
    this.#sliceStart -= elementBytes;
    if (this.#at - this.#sliceStart < this.#limits.sliceBytes) return false;
    this.#sliceStart = this.#at;
    return true;
  }
}
