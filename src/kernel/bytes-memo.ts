/**
 * What was worked out from some bytes, for when the same bytes come again: most clients say the same of themselves with every
 * request. Only for what depends on nothing but the bytes, and is never changed afterwards.
 * Invariant: at most `entriesMax` of at most `bytesMax` each; the one put in longest ago goes first. The one
 * asked for last stays until the next.
 */
import { setBounded } from './bounded-map.js';
import { unpooledCopy } from './byte-buffer.js';

const entriesMax = 64;
const bytesMax = 1_024;

interface Entry<T> {
  readonly bytes: Buffer;
  readonly value: T;
}

export class BytesMemo<T> {
  readonly #entries = new Map<string, Entry<T>>();
  /** Nearly always it is this one again, and comparing costs less than looking up. */
  #last: Entry<T> | undefined;

  /** The value that `make` gives for these bytes; `mayKeep` false for one that would not be asked for again. */
  of(bytes: Buffer, make: (bytes: Buffer) => T, mayKeep: (value: T) => boolean): T {
    if (bytes.length > bytesMax) return make(bytes);
    const last = this.#last;
    if (last !== undefined && last.bytes.length === bytes.length && last.bytes.equals(bytes)) return last.value;
    const key = bytes.toString('latin1');
    let entry = this.#entries.get(key);
    if (entry === undefined) {
      // From a copy: what is kept must not hold on to the message it came in, nor change with it.
      const copy = unpooledCopy(bytes);
      entry = { bytes: copy, value: make(copy) };
      if (!mayKeep(entry.value)) return entry.value;
      setBounded(this.#entries, key, entry, entriesMax);
    }
    this.#last = entry;
    return entry.value;
  }
}
