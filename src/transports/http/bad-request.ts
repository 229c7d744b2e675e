/**
 * A 400 in a legacy session. The request may be wrong, or the server may not know the session any more: many servers say so
 * with 400 instead of 404. The session finds out (session/session-check.ts).
 */
import { HostError } from '../../kernel/errors.js';

/** A JSON-RPC error with the id of the request, which the server sent as the body of the 400. */
export interface RefusalAnswer {
  readonly bytes: Buffer;
  readonly mayHold: number;
}

export class BadRequest extends HostError {
  /** What the caller gets when the session turns out to be known. */
  readonly answer: RefusalAnswer | undefined;

  constructor(error: HostError, answer: RefusalAnswer | undefined) {
    super(error.code, error.message, { ...error.details, ...(error.hint === undefined ? {} : { hint: error.hint }) });
    this.answer = answer;
  }
}
