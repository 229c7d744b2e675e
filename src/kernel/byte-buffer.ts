/**
 * Bytes that arrive in pieces, in one buffer that grows by doubling: a single byte costs the same however many are
 * waiting, and no piece is kept as an object of its own. Not here: how much may be gathered (its users).
 */
const EMPTY = Buffer.alloc(0);
const firstBytes = 4096;

export class ByteBuffer {
  #bytes: Buffer = EMPTY;
  #length = 0;

  get length(): number {
    return this.#length;
  }

  add(source: Buffer, from = 0, to = source.length): void {
    this.#reserve(to - from);
    source.copy(this.#bytes, this.#length, from, to);
    this.#length += to - from;
  }

  addByte(byte: number): void {
    this.#reserve(1);
    this.#bytes[this.#length++] = byte;
  }

  /** Hands the buffer over: the receiver may keep it. */
  take(): Buffer {
    const taken = this.#bytes.subarray(0, this.#length);
    this.#bytes = EMPTY;
    this.#length = 0;
    return taken;
  }

  #reserve(more: number): void {
    const needed = this.#length + more;
    if (needed <= this.#bytes.length) return;
    const grown = Buffer.allocUnsafeSlow(Math.max(firstBytes, this.#bytes.length * 2, needed));
    this.#bytes.copy(grown, 0, 0, this.#length);
    this.#bytes = grown;
  }
}
