/**
 * The questions that one legacy session was asked on behalf of its requests (elicitation, sampling, roots).
 * Invariants: ids are ours and count up; an answer is given once, to the question whose id it carries, in this session only;
 * every question ends by its deadline.
 */
import type { Clock } from '../../kernel/clock.js';
import { type ErrorCode, HostError } from '../../kernel/errors.js';
import type { Envelope } from '../../wire/envelope.js';
import type { JsonText } from '../../wire/frame.js';
import type { Answer } from '../../wire/peer.js';
import { NOTIFICATION } from '../../wire/rpc-codes.js';
import type { AskLimits } from '../exchange.js';
import { notificationText, requestText } from '../messages/rpc-text.js';

/** Where a question is written: the stream of the request it belongs to. False: nobody can ever read it. */
export type Tell = (parts: readonly JsonText[]) => boolean;

interface Question {
  readonly answered: (answer: Answer) => void;
  readonly giveUp: (error: HostError) => void;
}

export class LegacyAsks {
  readonly #clock: Clock;
  readonly #max: number;
  readonly #open = new Map<number, Question>();
  #lastId = 0;

  constructor(clock: Clock, max: number) {
    this.#clock = clock;
    this.#max = max;
  }

  get size(): number {
    return this.#open.size;
  }

  /** `gone` aborts when the request it belongs to is over. */
  ask(tell: Tell, method: string, params: JsonText | undefined, limits: AskLimits, gone: AbortSignal): Promise<Answer> {
    return new Promise((resolve, reject) => {
      if (this.#open.size >= this.#max)
        return reject(failed('overloaded', `the client owes ${this.#max} answers already`));
      if (gone.aborted || limits.signal?.aborted) return reject(withdrawn());
      const id = ++this.#lastId;
      const end = (): void => {
        this.#open.delete(id);
        cancelTimer();
        gone.removeEventListener('abort', onAbort);
        limits.signal?.removeEventListener('abort', onAbort);
      };
      const giveUp = (error: HostError): void => {
        end();
        tell(notificationText(NOTIFICATION.cancelled, `{"requestId":${id}}`));
        reject(error);
      };
      const onAbort = (): void => giveUp(withdrawn());
      const answered = (answer: Answer): void => {
        end();
        resolve(answer);
      };
      const cancelTimer = this.#clock.at(limits.deadlineAtMs, () =>
        giveUp(failed('timeout', `the client did not answer ${method} in time`)),
      );
      gone.addEventListener('abort', onAbort, { once: true });
      limits.signal?.addEventListener('abort', onAbort, { once: true });
      this.#open.set(id, { answered, giveUp });
      if (tell(requestText(id, method, params))) return;
      end();
      reject(failed('transport', `the client has gone and cannot be asked ${method}`));
    });
  }

  /** False: no question of ours has this id, or not any more. */
  answer(envelope: Envelope): boolean {
    const question = this.#open.get(envelope.numericId());
    if (!question) return false;
    const kind = envelope.kind === 'error' ? 'error' : 'result';
    question.answered({ kind, bytes: envelope.payload() ?? Buffer.from('{}'), mayHold: envelope.mayHold });
    return true;
  }

  end(): void {
    for (const { giveUp } of [...this.#open.values()]) giveUp(failed('transport', 'the session of the client is over'));
  }
}

const withdrawn = () => failed('cancelled', 'the request that asked the client is over');

const failed = (code: ErrorCode, message: string) => new HostError(code, message, { phase: 'written' });
