/**
 * A growable buffer for bytes that arrive in chunks: a body, a line, the data of an event. Bytes are copied into slabs that
 * never move, so adding a byte costs the same at any length.
 * Invariants: unused room is at most 64 KiB, and less than the larger of 256 bytes and the bytes added so far. If there is
 * a budget, the slabs use it.
 */
import type { ByteBudget } from './byte-budget.js';

const EMPTY = Buffer.alloc(0);
const slabBytesMin = 256;
const slabBytesMax = 64 * 1024;

export class ByteBuffer {
  readonly #budget: ByteBudget | undefined;
  #slabs: Buffer[] = [];
  #last: Buffer = EMPTY;
  #lastUsed = 0;
  /** Bytes in all slabs, used or not. */
  #capacity = 0;

  constructor(budget?: ByteBudget) {
    this.#budget = budget;
  }

  get length(): number {
    return this.#capacity - this.#last.length + this.#lastUsed;
  }

  /** Returns false if the budget is exhausted. Then the buffer contains only part of the bytes, and must be cleared. */
  add(source: Buffer, from = 0, to = source.length): boolean {
    for (let at = from; at < to; ) {
      if (this.#lastUsed === this.#last.length && !this.#grow(to - at)) return false;
      const copied = source.copy(this.#last, this.#lastUsed, at, to);
      this.#lastUsed += copied;
      at += copied;
    }
    return true;
  }

  addByte(byte: number): boolean {
    if (this.#lastUsed === this.#last.length && !this.#grow(1)) return false;
    this.#last[this.#lastUsed++] = byte;
    return true;
  }

  /** Returns the bytes as one buffer that the caller may store, and empties this buffer. */
  take(): Buffer {
    const isOne = this.#slabs.length <= 1 && this.#lastUsed * 2 >= this.#last.length;
    const taken = isOne ? this.#last.subarray(0, this.#lastUsed) : Buffer.concat(this.#slabs, this.length);
    this.clear();
    return taken;
  }

  clear(): void {
    this.#budget?.release(this.#capacity);
    this.#slabs = [];
    this.#last = EMPTY;
    this.#lastUsed = this.#capacity = 0;
  }

  #grow(more: number): boolean {
    const size = Math.min(Math.max(slabBytesMin, this.#capacity, more), slabBytesMax);
    if (this.#budget?.take(size) === false) return false;
    this.#last = Buffer.allocUnsafeSlow(size);
    this.#slabs.push(this.#last);
    this.#lastUsed = 0;
    this.#capacity += size;
    return true;
  }
}

/**
 * Copies bytes that stay in memory for long. `Buffer.from` copies a few bytes into an 8 KiB block that Node shares between
 * buffers, so a copy of two bytes would retain the whole block.
 */
export function unpooledCopy(bytes: Uint8Array): Buffer {
  const copy = Buffer.allocUnsafeSlow(bytes.length);
  copy.set(bytes);
  return copy;
}
