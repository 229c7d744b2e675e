/**
 * Requests to the client of a pipe (legacy era) that wait for its answer.
 * Invariants: ids are our own, each given once; an answer is taken only by the request that has its id, and once; every ask
 * is settled: by an answer, its deadline, its signal, the end of what it was asked for, or the end of the pipe.
 */
import type { Clock } from '../../kernel/clock.js';
import { type ErrorCode, HostError } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import type { Envelope } from '../../wire/envelope.js';
import type { JsonText } from '../../wire/frame.js';
import type { Answer } from '../../wire/peer.js';
import { NOTIFICATION } from '../../wire/rpc-codes.js';
import type { AskLimits } from '../exchange.js';

interface Ask {
  readonly owner: object;
  readonly method: string;
  readonly settle: (outcome: Answer | HostError) => void;
}

export class ClientAsks {
  readonly #clock: Clock;
  readonly #write: (parts: readonly JsonText[]) => void;
  /** At most `LIMITS.inboundRequests`. */
  readonly #open = new Map<number, Ask>();
  #nextId = 1;
  #closed: HostError | undefined;

  constructor(clock: Clock, write: (parts: readonly JsonText[]) => void) {
    this.#clock = clock;
    this.#write = write;
  }

  get size(): number {
    return this.#open.size;
  }

  /** `owner` is the request on whose behalf it is asked. */
  ask(
    owner: object,
    method: string,
    params: JsonText | undefined,
    { deadlineAtMs, signal }: AskLimits,
  ): Promise<Answer> {
    if (this.#closed) return Promise.reject(this.#closed);
    if (this.#open.size >= LIMITS.inboundRequests) return Promise.reject(tooMany());
    if (signal?.aborted) return Promise.reject(unanswered('cancelled', method, 'was cancelled before it was sent'));
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      const cancelTimer = this.#clock.at(deadlineAtMs, () => this.#giveUp(id, 'timeout', 'was not answered in time'));
      const onAbort = () => this.#giveUp(id, 'cancelled', 'is no longer wanted');
      const settle = (outcome: Answer | HostError) => {
        this.#open.delete(id);
        cancelTimer();
        signal?.removeEventListener('abort', onAbort);
        if (outcome instanceof HostError) reject(outcome);
        else resolve(outcome);
      };
      this.#open.set(id, { owner, method, settle });
      signal?.addEventListener('abort', onAbort, { once: true });
      const head = `{"jsonrpc":"2.0","id":${id},"method":${JSON.stringify(method)}`;
      this.#write(params === undefined ? [head, '}'] : [head, ',"params":', params, '}']);
    });
  }

  /** False: nobody waits for it. */
  answered(envelope: Envelope): boolean {
    const ask = this.#open.get(envelope.numericId());
    const bytes = envelope.payload();
    if (!ask || !bytes) return false;
    ask.settle({ kind: envelope.kind as Answer['kind'], bytes, mayHold: envelope.mayHold });
    return true;
  }

  /** What was asked on behalf of this request is asked no more. */
  withdraw(owner: object): void {
    if (this.#open.size === 0) return;
    for (const [id, ask] of [...this.#open])
      if (ask.owner === owner) this.#giveUp(id, 'cancelled', 'is no longer wanted');
  }

  close(): void {
    this.#closed = new HostError('transport', 'the client is gone', { reason: 'closed', execution: 'uncertain' });
    for (const { settle } of [...this.#open.values()]) settle(this.#closed);
  }

  #giveUp(id: number, code: ErrorCode, what: string): void {
    const ask = this.#open.get(id);
    if (!ask) return;
    this.#write([`{"jsonrpc":"2.0","method":"${NOTIFICATION.cancelled}","params":{"requestId":${id}}}`]);
    ask.settle(unanswered(code, ask.method, what));
  }
}

const unanswered = (code: ErrorCode, method: string, what: string): HostError =>
  new HostError(code, `${method} to the client ${what}`, { execution: 'uncertain' });

const tooMany = (): HostError =>
  new HostError('overloaded', `the client owes ${LIMITS.inboundRequests} answers already`, {
    reason: 'pending_requests',
    execution: 'not_executed',
    limit: LIMITS.inboundRequests,
  });
