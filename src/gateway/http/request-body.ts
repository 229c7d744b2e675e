/**
 * Reads the body of a request, up to a bound. The server's requestTimeout limits how long it may take.
 * Not here: where the pieces come from (direct-body-request.ts).
 * Invariants: `done` is called at most once, and not after the sender left; all bodies being read share one byte budget.
 */
import type { ByteBudget } from '../../kernel/byte-budget.js';
import { ByteBuffer } from '../../kernel/byte-buffer.js';

const nothing = Buffer.alloc(0);
/** Each piece costs the same however small it is: 4 MiB come in some thousand from an honest sender, in millions from none. */
const piecesMax = 10_000;

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
  /** For bodies that are not complete yet. A body that came in one piece is not counted. */
  readonly #budget: ByteBudget;
  readonly #done: (body: Buffer | BodyFault) => void;
  /** Nearly every body is one piece, and is passed on without a copy. */
  #only: Buffer = nothing;
  #gathered: ByteBuffer | undefined;
  #bytes = 0;
  #pieces = 0;
  #isOver = false;

  constructor(bytesMax: number, budget: ByteBudget, done: (body: Buffer | BodyFault) => void) {
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
    this.#gathered ??= new ByteBuffer(this.#budget);
    if (!this.#gathered.add(this.#only) || !this.#gathered.add(bytes)) return this.#refuse('busy');
    this.#only = nothing;
  }

  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#done(this.#gathered?.take() ?? this.#only);
  }

  left(): void {
    this.#isOver = true;
    this.#only = nothing;
    this.#gathered?.clear();
  }

  #refuse(fault: BodyFault): void {
    this.left();
    this.#done(fault);
  }
}
