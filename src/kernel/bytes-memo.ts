/**
 * What was worked out from some bytes, for when the same bytes come again: most clients say the same of themselves with every
 * request. Only for what depends on nothing but the bytes, and is never changed afterwards.
 * Invariant: at most `entriesMax` of at most `bytesMax` each; the one put in longest ago goes first.
 */
import { setBounded } from './bounded-map.js';

const entriesMax = 64;
const bytesMax = 1_024;

export class BytesMemo<T> {
  readonly #values = new Map<string, T>();

  /** The value that `make` gives for these bytes; `mayKeep` false for one that would not be asked for again. */
  of(bytes: Buffer, make: (bytes: Buffer) => T, mayKeep: (value: T) => boolean): T {
    if (bytes.length > bytesMax) return make(bytes);
    const key = bytes.toString('latin1');
    const known = this.#values.get(key);
    if (known !== undefined) return known;
    // From a copy: what is kept must not hold on to the message it came in, nor change with it.
    const value = make(Buffer.from(bytes));
    if (mayKeep(value)) setBounded(this.#values, key, value, entriesMax);
    return value;
  }
}
