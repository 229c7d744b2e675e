/**
 * Reads the body of a request, up to a bound. How long it may take is the server's business (requestTimeout).
 * Not here: where the pieces come from (taken-request.ts).
 * Invariants: `done` is told once, and never for a body whose sender left; what is held is at most twice what came, however
 * small the pieces it came in, and of all bodies that are being read at most the budget.
 */

const nothing = Buffer.alloc(0);
const gatheredBytesMin = 4 * 1024;
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
  #held: Buffer = nothing;
  #isGathered = false;
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
      this.#held = bytes;
      return;
    }
    if ((!this.#isGathered || this.#held.length < this.#bytes) && !this.#grow(before)) return this.#refuse('busy');
    bytes.copy(this.#held, before);
  }

  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const held = this.#held;
    const body = held.length === this.#bytes ? held : held.subarray(0, this.#bytes);
    this.#giveBack();
    this.#done(body);
  }

  left(): void {
    this.#isOver = true;
    this.#giveBack();
  }

  #grow(before: number): boolean {
    const size = Math.max(gatheredBytesMin, Math.min(this.#bytes * 2, this.#bytesMax));
    const budget = this.#budget;
    if (budget.used + size - this.#counted > budget.max) return false;
    budget.used += size - this.#counted;
    this.#counted = size;
    const larger = Buffer.allocUnsafe(size);
    this.#held.copy(larger, 0, 0, before);
    this.#held = larger;
    this.#isGathered = true;
    return true;
  }

  #refuse(fault: BodyFault): void {
    this.#isOver = true;
    this.#giveBack();
    this.#done(fault);
  }

  #giveBack(): void {
    this.#budget.used -= this.#counted;
    this.#counted = 0;
    this.#held = nothing;
  }
}
