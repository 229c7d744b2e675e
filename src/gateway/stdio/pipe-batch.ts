/**
 * Collects the answers to one batch (protocol 2025-03-26) and writes them together after the last one.
 * Invariant: the batch is written once, or never if no message needs an answer.
 */
import type { JsonText } from '../../wire/frame.js';
import type { BatchAnswers } from './stdio-exchange.js';

export class PipeBatch implements BatchAnswers {
  readonly #send: (parts: readonly JsonText[]) => void;
  readonly #parts: JsonText[] = [];
  /** Starts at 1 while the batch is read, so that immediate answers do not complete it. */
  #pending = 1;

  constructor(send: (parts: readonly JsonText[]) => void) {
    this.#send = send;
  }

  expect(): void {
    this.#pending++;
  }

  /** `answer` is undefined for a cancelled request. */
  add(answer: readonly JsonText[] | undefined): void {
    if (answer) this.#parts.push(this.#parts.length === 0 ? '[' : ',', ...answer);
    this.complete();
  }

  /** The reader calls it once, after it has read the whole batch. */
  complete(): void {
    this.#pending--;
    if (this.#pending === 0 && this.#parts.length > 0) this.#send([...this.#parts, ']']);
  }
}
