/**
 * The answers to one batch of messages (protocol 2025-03-26), sent together when the last is in.
 * Invariant: sent once, and not at all when there is nothing to answer.
 */
import type { JsonText } from '../../wire/frame.js';
import type { BatchAnswers } from './stdio-exchange.js';

export class PipeBatch implements BatchAnswers {
  readonly #send: (parts: readonly JsonText[]) => void;
  readonly #parts: JsonText[] = [];
  /** One for reading the batch itself, so that answers given at once do not end it. */
  #owed = 1;

  constructor(send: (parts: readonly JsonText[]) => void) {
    this.#send = send;
  }

  /** One more request is to be answered. */
  owe(): void {
    this.#owed++;
  }

  /** An answer, or undefined for a request that was cancelled. */
  add(answer: readonly JsonText[] | undefined): void {
    if (answer) this.#parts.push(this.#parts.length === 0 ? '[' : ',', ...answer);
    this.complete();
  }

  /** Call it once more when all of the batch was read. */
  complete(): void {
    this.#owed--;
    if (this.#owed === 0 && this.#parts.length > 0) this.#send([...this.#parts, ']']);
  }
}
