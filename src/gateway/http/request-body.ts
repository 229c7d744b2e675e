/**
 * Reads the body of a request, up to a bound. How long it may take is the server's business (requestTimeout).
 * Invariants: `done` is told once, and never for a body whose sender left; what is held is at most twice what came, however
 * small the pieces it came in, and of all bodies that are being read at most the budget.
 */
import type { IncomingMessage } from 'node:http';

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

export function readBody(
  request: IncomingMessage,
  bytesMax: number,
  budget: BodyBudget,
  done: (body: Buffer | BodyFault) => void,
): void {
  /** Nearly every body is one piece, and is taken as it came. */
  let held: Buffer = nothing;
  let isGathered = false;
  let bytes = 0;
  let pieces = 0;
  let isOver = false;
  let counted = 0;
  const giveBack = (): void => {
    budget.used -= counted;
    counted = 0;
    held = nothing;
  };
  const refuse = (fault: BodyFault): void => {
    isOver = true;
    giveBack();
    done(fault);
  };
  request.on('data', (chunk: Buffer) => {
    if (isOver) return;
    const before = bytes;
    bytes += chunk.length;
    if (bytes > bytesMax || ++pieces > piecesMax) return refuse('too_large');
    if (before === 0) {
      held = chunk;
      return;
    }
    if (!isGathered || held.length < bytes) {
      const size = Math.max(gatheredBytesMin, Math.min(bytes * 2, bytesMax));
      if (budget.used + size - counted > budget.max) return refuse('busy');
      budget.used += size - counted;
      counted = size;
      const larger = Buffer.allocUnsafe(size);
      held.copy(larger, 0, 0, before);
      held = larger;
      isGathered = true;
    }
    chunk.copy(held, before);
  });
  request.on('end', () => {
    if (isOver) return;
    isOver = true;
    const body = held.subarray(0, bytes);
    giveBack();
    done(body);
  });
  request.on('close', giveBack);
}
