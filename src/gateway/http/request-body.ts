/**
 * Reads the body of a request, up to a bound. How long it may take is the server's business (requestTimeout).
 * Invariants: `done` is told once, and never for a body whose sender left; what is held is at most twice what came, however
 * small the pieces it came in.
 */
import type { IncomingMessage } from 'node:http';

const nothing = Buffer.alloc(0);
const gatheredBytesMin = 4 * 1024;
/** Each piece costs the same however small it is: 4 MiB come in some thousand from an honest sender, in millions from none. */
const piecesMax = 10_000;

/** `done` gets undefined for a body that is too large, or in too many pieces. */
export function readBody(request: IncomingMessage, bytesMax: number, done: (body: Buffer | undefined) => void): void {
  /** Nearly every body is one piece, and is taken as it came. */
  let held: Buffer = nothing;
  let isGathered = false;
  let bytes = 0;
  let pieces = 0;
  let isOver = false;
  request.on('data', (chunk: Buffer) => {
    if (isOver) return;
    const before = bytes;
    bytes += chunk.length;
    if (bytes > bytesMax || ++pieces > piecesMax) {
      isOver = true;
      held = nothing;
      done(undefined);
      return;
    }
    if (before === 0) {
      held = chunk;
      return;
    }
    if (!isGathered || held.length < bytes) {
      const larger = Buffer.allocUnsafe(Math.max(gatheredBytesMin, bytes * 2));
      held.copy(larger, 0, 0, before);
      held = larger;
      isGathered = true;
    }
    chunk.copy(held, before);
  });
  request.on('end', () => {
    if (!isOver) done(held.subarray(0, bytes));
  });
}
