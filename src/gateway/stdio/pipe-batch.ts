/**
 * The answers to one batch of messages (protocol 2025-03-26), written together after the last one.
 * Invariant: written once, and not at all when no message needs an answer.
 */
import type { JsonText } from '../../wire/frame.js';
import type { BatchAnswers } from './stdio-exchange.js';

export class PipeBatch implements BatchAnswers {
  readonly #send: (parts: readonly JsonText[]) => void;
  readonly #parts: JsonText[] = [];
  /** Starts at one for the reading of the batch, so that immediate answers do not complete it. */
  #owed = 1;

  constructor(send: (parts: readonly JsonText[]) => void) {
    this.#send = send;
  }

  /** Counts one more request. */
  owe(): void {
    this.#owed++;
  }

  /** An answer, or undefined for a request that was cancelled. */
  add(answer: readonly JsonText[] | undefined): void {
    if (answer) this.#parts.push(this.#parts.length === 0 ? '[' : ',', ...answer);
    this.complete();
  }

  /** Call it once more after the whole batch was read. */
  complete(): void {
    this.#owed--;
    if (this.#owed === 0 && this.#parts.length > 0) this.#send([...this.#parts, ']']);
  }
}
