/**
 * Caches values computed from repeated bytes: most clients send the same metadata with every request. Values must be immutable
 * and depend only on the bytes.
 * Invariant: at most `entriesMax` entries of at most `bytesMax` each; the oldest entry is dropped first.
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
  /** The last hit. It usually matches again, and a comparison costs less than a lookup. */
  #last: Entry<T> | undefined;

  /** Returns the value of `make` for these bytes. If `mayKeep` returns false, the value is not cached. */
  of(bytes: Buffer, make: (bytes: Buffer) => T, mayKeep: (value: T) => boolean): T {
    if (bytes.length > bytesMax) return make(bytes);
    const last = this.#last;
    if (last !== undefined && last.bytes.length === bytes.length && last.bytes.equals(bytes)) return last.value;
    const key = bytes.toString('latin1');
    let entry = this.#entries.get(key);
    if (entry === undefined) {
      // `make` gets a copy: a value made from `bytes` could retain the whole message around them, and change with it.
      const copy = unpooledCopy(bytes);
      entry = { bytes: copy, value: make(copy) };
      if (!mayKeep(entry.value)) return entry.value;
      setBounded(this.#entries, key, entry, entriesMax);
    }
    this.#last = entry;
    return entry.value;
  }
}
