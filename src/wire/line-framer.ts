/**
 * Byte chunks → lines. Each byte is looked at once; a line that lies within one chunk is not copied.
 * Bytes of an unfinished line go into fixed slabs, so a server that drips single bytes costs the same per byte however
 * much is already waiting, and at most `maxBytes` are ever held.
 */
const NEWLINE = 0x0a;
const slabBytes = 64 * 1024;

export class LineFramer {
  readonly #maxBytes: number;
  readonly #onLine: (bytes: Buffer, start: number, end: number) => void;
  readonly #onTooLong: (bytes: number) => void;
  #slabs: Buffer[] = [];
  #slabUsed = 0;
  #pendingBytes = 0;
  #dead = false;

  constructor(
    maxBytes: number,
    onLine: (bytes: Buffer, start: number, end: number) => void,
    onTooLong: (bytes: number) => void,
  ) {
    this.#maxBytes = maxBytes;
    this.#onLine = onLine;
    this.#onTooLong = onTooLong;
  }

  /** Bytes of the line that has not ended yet. */
  get pendingBytes(): number {
    return this.#pendingBytes;
  }

  push(chunk: Buffer): void {
    let from = 0;
    while (!this.#dead && from < chunk.length) {
      const newline = chunk.indexOf(NEWLINE, from);
      if (newline < 0) return this.#keep(chunk, from, chunk.length);
      if (this.#pendingBytes > 0) {
        this.#keep(chunk, from, newline);
        if (!this.#dead) this.#finish();
      } else if (newline - from > this.#maxBytes) {
        this.#overflow(newline - from);
      } else {
        this.#onLine(chunk, from, newline);
      }
      from = newline + 1;
    }
  }

  /** The stream is over: what is left may be a whole message that only lacks its newline. */
  end(): void {
    if (!this.#dead && this.#pendingBytes > 0) this.#finish();
    this.#dead = true;
  }

  #keep(chunk: Buffer, from: number, to: number): void {
    this.#pendingBytes += to - from;
    if (this.#pendingBytes > this.#maxBytes) return this.#overflow(this.#pendingBytes);
    let at = from;
    while (at < to) {
      let slab = this.#slabs[this.#slabs.length - 1];
      if (!slab || this.#slabUsed === slabBytes) {
        slab = Buffer.allocUnsafeSlow(slabBytes);
        this.#slabs.push(slab);
        this.#slabUsed = 0;
      }
      const copied = chunk.copy(slab, this.#slabUsed, at, to);
      this.#slabUsed += copied;
      at += copied;
    }
  }

  #finish(): void {
    const length = this.#pendingBytes;
    const [only] = this.#slabs;
    const line = this.#slabs.length === 1 && only ? only : Buffer.concat(this.#slabs, length);
    this.#drop();
    this.#onLine(line, 0, length);
  }

  #overflow(bytes: number): void {
    this.#drop();
    this.#dead = true;
    this.#onTooLong(bytes);
  }

  #drop(): void {
    this.#slabs = [];
    this.#slabUsed = 0;
    this.#pendingBytes = 0;
  }
}
