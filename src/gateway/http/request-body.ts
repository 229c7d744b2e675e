/**
 * Reads the body of a request, up to a bound. How long it may take is the server's business (requestTimeout).
 * Not here: where the pieces come from (taken-request.ts).
 * Invariants: `done` is told once, and never for a body whose sender left; what is held is at most twice what came, however
 * small the pieces it came in, and of all bodies that are being read at most the budget.
 */

const nothing = Buffer.alloc(0);
/** Slabs grow with the body up to this, and are never copied to larger ones: what was copied from would wait to be collected. */
const slabBytesMax = 64 * 1024;
const slabBytesMin = 256;
/** Each piece costs the same however small it is: 4 MiB come in some thousand from an honest sender, in millions from none. */
const piecesMax = 10_000;

/** Bytes of bodies that are not there as a whole yet, of all clients. One that came in one piece is not among them. */
export class BodyBudget {
  readonly max: number;
  used = 0;

  constructor(max: number) {
    this.max = max;
  }
}

/** Of a body that is not taken: it is too large or in too many pieces; too much of others is being read. */
export type BodyFault = 'too_large' | 'busy';

/** Who is told of a body as it comes in. */
export interface BodyReader {
  /** To be kept. */
  piece(bytes: Buffer): void;
  end(): void;
  /** The sender is gone; more cannot come. */
  left(): void;
}

export class GatheredBody implements BodyReader {
  readonly #bytesMax: number;
  readonly #budget: BodyBudget;
  readonly #done: (body: Buffer | BodyFault) => void;
  /** Nearly every body is one piece, and is taken as it came. */
  #only: Buffer = nothing;
  /** Of one that is not; all but the last are full. */
  #slabs: Buffer[] | undefined;
  /** Used of the last. */
  #used = 0;
  #bytes = 0;
  #pieces = 0;
  #isOver = false;
  #counted = 0;

  constructor(bytesMax: number, budget: BodyBudget, done: (body: Buffer | BodyFault) => void) {
    this.#bytesMax = bytesMax;
    this.#budget = budget;
    this.#done = done;
  }

  piece(bytes: Buffer): void {
    if (this.#isOver) return;
    const before = this.#bytes;
    this.#bytes += bytes.length;
    if (this.#bytes > this.#bytesMax || ++this.#pieces > piecesMax) return this.#refuse('too_large');
    if (before === 0) {
      this.#only = bytes;
      return;
    }
    if ((this.#slabs === undefined && !this.#gather(this.#only)) || !this.#gather(bytes)) return this.#refuse('busy');
    this.#only = nothing;
  }

  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    // Also a single slab is copied: most of it may be empty, and what is made of the body may live long.
    const body = this.#slabs ? Buffer.concat(this.#slabs, this.#bytes) : this.#only;
    this.#giveBack();
    this.#done(body);
  }

  left(): void {
    this.#isOver = true;
    this.#giveBack();
  }

  /** False when there is no room for it. */
  #gather(bytes: Buffer): boolean {
    for (let at = 0; at < bytes.length; ) {
      let slab = this.#slabs?.at(-1);
      if (slab === undefined || this.#used === slab.length) {
        slab = this.#newSlab();
        if (slab === undefined) return false;
      }
      const copied = bytes.copy(slab, this.#used, at);
      this.#used += copied;
      at += copied;
    }
    return true;
  }

  #newSlab(): Buffer | undefined {
    const size = Math.min(Math.max(slabBytesMin, this.#bytes), slabBytesMax);
    const budget = this.#budget;
    if (budget.used + size > budget.max) return undefined;
    budget.used += size;
    this.#counted += size;
    const slab = Buffer.allocUnsafeSlow(size);
    this.#slabs ??= [];
    this.#slabs.push(slab);
    this.#used = 0;
    return slab;
  }

  #refuse(fault: BodyFault): void {
    this.#isOver = true;
    this.#giveBack();
    this.#done(fault);
  }

  #giveBack(): void {
    this.#budget.used -= this.#counted;
    this.#counted = 0;
    this.#only = nothing;
    this.#slabs = undefined;
  }
}
