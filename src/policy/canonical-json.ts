/**
 * Canonical text of a JSON value (RFC 8785) and its hash: keys sorted by UTF-16 code unit, no spaces. The input is JSON
 * text, which is never parsed by `JSON.parse` as a whole: that would round large integers.
 * Not here: uses of the hash (cache-stage.ts).
 *
 * Invariants: two values have the same text only if they are equal. Input without a canonical text (not JSON, a duplicate key,
 * nested too deep) is refused with its path.
 */
import { isUtf8 } from 'node:buffer';
import { hash } from 'node:crypto';
import { HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import type { JsonText } from '../wire/channel.js';

/** Bound of nested arrays and objects. */
const canonicalDepthMax = 64;

type Key = string | number;

/** Lower-case hex SHA-256 of the canonical text. Throws for large arguments, which would block the event loop. */
export function argumentsHash(text: JsonText): string {
  if (text.length > LIMITS.hashedBytes) throw refusal([], `are longer than ${LIMITS.hashedBytes} bytes`);
  return hash('sha256', canonicalText(text), 'hex');
}

/** `text` is one JSON value with at most `valuesMax` values at any depth. */
export function canonicalText(text: JsonText, valuesMax = Number.POSITIVE_INFINITY): string {
  if (typeof text === 'string') return new Rewriter(text, valuesMax).whole();
  const bytes = Buffer.from(text.buffer, text.byteOffset, text.byteLength);
  // Decoding would turn different invalid bytes into the same replacement character.
  if (!isUtf8(bytes)) throw refusal([], 'is not valid UTF-8');
  return new Rewriter(bytes.toString('utf8'), valuesMax).whole();
}

const byKey = ([a]: readonly [string, unknown], [b]: readonly [string, unknown]): number =>
  a < b ? -1 : a > b ? 1 : 0;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const COMMA = 0x2c;
const COLON = 0x3a;
const words = ['true', 'false', 'null'] as const;
const numberPattern = /^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$/;

/** Reads JSON text once, front to back, and writes it in canonical form. */
class Rewriter {
  readonly #text: string;
  #at = 0;
  readonly #path: Key[] = [];

  #valuesLeft: number;

  constructor(text: string, valuesMax: number) {
    this.#text = text;
    this.#valuesLeft = valuesMax;
  }

  whole(): string {
    const text = this.#value(0);
    if (!Number.isNaN(this.#next())) throw this.#broken();
    return text;
  }

  #value(depth: number): string {
    if (--this.#valuesLeft < 0) throw refusal([], 'has too many values');
    const first = this.#next();
    if (first === QUOTE) return this.#string();
    if (first === OPEN_BRACE) return this.#object(depth);
    if (first === OPEN_BRACKET) return this.#array(depth);
    const word = this.#word();
    // No number starts with the first letter of these words.
    if (words.includes(word as 'null')) return word;
    if (!numberPattern.test(word)) throw this.#broken();
    return canonicalNumber(word);
  }

  #object(depth: number): string {
    if (depth >= canonicalDepthMax) throw tooDeep(this.#path);
    const members: [key: string, text: string][] = [];
    let isSorted = true;
    this.#at++;
    if (this.#takes(CLOSE_BRACE)) return '{}';
    do {
      if (this.#next() !== QUOTE) throw this.#broken();
      const quoted = this.#string();
      // Keys are sorted by their unescaped text.
      const key = quoted.includes('\\') ? (JSON.parse(quoted) as string) : quoted.slice(1, -1);
      if (!this.#takes(COLON)) throw this.#broken();
      this.#path[depth] = key;
      const previous = members.at(-1);
      if (previous && !(previous[0] < key)) isSorted = false;
      members.push([key, `${quoted}:${this.#value(depth + 1)}`]);
      this.#path.length = depth;
    } while (this.#takes(COMMA));
    if (!this.#takes(CLOSE_BRACE)) throw this.#broken();
    if (!isSorted) this.#sort(members);
    return `{${members.map(([, text]) => text).join(',')}}`;
  }

  #sort(members: [key: string, text: string][]): void {
    members.sort(byKey);
    members.forEach(([key], i) => {
      if (key === members[i + 1]?.[0]) throw refusal([...this.#path, key], 'is a duplicate key');
    });
  }

  #array(depth: number): string {
    if (depth >= canonicalDepthMax) throw tooDeep(this.#path);
    const items: string[] = [];
    this.#at++;
    if (this.#takes(CLOSE_BRACKET)) return '[]';
    do {
      this.#path[depth] = items.length;
      items.push(this.#value(depth + 1));
      this.#path.length = depth;
    } while (this.#takes(COMMA));
    if (!this.#takes(CLOSE_BRACKET)) throw this.#broken();
    return `[${items.join(',')}]`;
  }

  /** A string without escapes and surrogates is already canonical; any other is parsed and written again. */
  #string(): string {
    const text = this.#text;
    const start = this.#at;
    let isPlain = true;
    let i = start + 1;
    for (let code = text.charCodeAt(i); code !== QUOTE; code = text.charCodeAt(i)) {
      // Also true at the end of the text, where `code` is NaN.
      if (!(code >= 0x20)) throw this.#broken();
      if (code === BACKSLASH || (code >= 0xd800 && code <= 0xdfff)) isPlain = false;
      i += code === BACKSLASH ? 2 : 1;
    }
    this.#at = i + 1;
    const quoted = text.slice(start, i + 1);
    if (isPlain) return quoted;
    try {
      return JSON.stringify(JSON.parse(quoted));
    } catch {
      throw this.#broken();
    }
  }

  /** Reads up to the next character that ends a word or a number. */
  #word(): string {
    const start = this.#at;
    for (;;) {
      const code = this.#text.charCodeAt(this.#at);
      // Accepts letters, digits, plus, minus and dot. `code` is NaN at the end of the text.
      if (!(code >= 0x2b) || code === COMMA || code === COLON || code === CLOSE_BRACKET || code === CLOSE_BRACE) break;
      this.#at++;
    }
    return this.#text.slice(start, this.#at);
  }

  #takes(code: number): boolean {
    if (this.#next() !== code) return false;
    this.#at++;
    return true;
  }

  /** The next character that is not whitespace; NaN at the end. */
  #next(): number {
    for (;;) {
      const code = this.#text.charCodeAt(this.#at);
      if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return code;
      this.#at++;
    }
  }

  #broken(): HostError {
    return refusal(this.#path, 'is not JSON');
  }
}

const tooDeep = (path: readonly Key[]) => refusal(path, `is nested deeper than ${canonicalDepthMax} levels`);

function refusal(path: readonly Key[], what: string): HostError {
  const steps = path.map((key) =>
    typeof key === 'number' ? `[${key}]` : /^\w+$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`,
  );
  const field = neutraliseLine(`arguments${steps.join('')}`, LIMITS.quotedChars);
  return new HostError('invalid_arguments', `${field} ${what}`, {
    field,
    phase: 'queued',
    execution: 'not_executed',
    hint: 'pass plain JSON data without duplicate keys',
  });
}

/** A double preserves every decimal number with this many digits. */
const exactDigits = 15;
/** Smaller doubles have fewer exact digits. */
const smallestExact = 1e-300;

function canonicalNumber(text: string): string {
  if (text.length <= exactDigits && isPlainInteger(text)) return text === '-0' ? '0' : text;
  const value = Number(text);
  if (!Number.isFinite(value)) return text;
  const printed = String(value);
  // Up to 15 digits and not tiny: no other number of this length has the same double, so printing is exact.
  if (text.length <= exactDigits && Math.abs(value) > smallestExact) return printed;
  return printed === text || decimalOf(printed) === decimalOf(text) ? printed : text;
}

/** Longer texts are not compared, which bounds the work. */
const comparedCharsMax = 400;
const jsonNumber = /^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,15})?$/;

/** True if two texts are the same JSON number to the last digit, such as 42, 42.0 and 4.2e1. */
export function isSameNumber(one: string, other: string): boolean {
  if (one.length > comparedCharsMax || other.length > comparedCharsMax) return false;
  return jsonNumber.test(one) && jsonNumber.test(other) && decimalOf(one) === decimalOf(other);
}

function isPlainInteger(text: string): boolean {
  for (let i = text.charCodeAt(0) === 0x2d ? 1 : 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code < 0x30 || code > 0x39) return false;
  }
  return true;
}

/** Exact value as sign, digits without zeros at either end, and power of ten. */
function decimalOf(text: string): string {
  const [mantissa = '', power = '0'] = text.toLowerCase().split('e');
  const sign = mantissa.startsWith('-') ? '-' : '';
  const [whole = '', fraction = ''] = mantissa.slice(sign.length).split('.');
  const all = withoutLeadingZeros(whole + fraction);
  let end = all.length;
  while (end > 0 && all.charCodeAt(end - 1) === 0x30) end--;
  if (end === 0) return '0';
  return `${sign}${all.slice(0, end)}e${Number(power) - fraction.length + all.length - end}`;
}

function withoutLeadingZeros(digits: string): string {
  let start = 0;
  while (digits.charCodeAt(start) === 0x30) start++;
  return digits.slice(start);
}
