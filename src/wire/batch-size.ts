/**
 * How many frames may leave together: a quarter of what is usually owed, so that the server works on one part while its
 * callers make the next. Not of what is owed this instant: callers who were all answered at once come back one by one, and
 * the first would be sent alone.
 */
/** Past it a larger batch saves nothing. */
const framesMax = 16;

/** Per request: a crowd is forgotten after some hundred calls without it. */
const decay = 1 / 256;

export class BatchSize {
  /** The most requests that were owed at once, of late. */
  #load = 0;

  /** For a request that makes it `owed`. */
  next(owed: number): number {
    this.#load = owed >= this.#load ? owed : this.#load - this.#load * decay;
    return Math.min(framesMax, Math.max(1, Math.round(this.#load / 4)));
  }
}
