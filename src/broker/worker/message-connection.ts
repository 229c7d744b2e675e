/**
 * A worker's connection as messages: sends requests, matches their answers, and hands everything else to the worker.
 * Not here: how messages travel (websocket/worker-connection.ts, nats/worker-connection.ts); sending calls again (call-table.ts).
 *
 * Invariants: every promise settles: with its answer, `answerMs` after it was sent, or when the connection ends. An error says `not_executed` only if
 * the call was not sent, or if the carrier knows that no host read it.
 */
import type { Clock } from '../../kernel/clock.js';
import { deferred } from '../../kernel/deferred.js';
import { HostError, notExecuted } from '../../kernel/errors.js';
import { newId } from '../../kernel/random.js';
import type { AskedCalls, CallRequest, HostMessage, Welcome, WorkerMessage } from '../protocol/messages.js';
import { PendingAnswers } from '../protocol/pending-answers.js';
import type { ConnectionHandlers, Receipt, WorkerConnection } from './connection.js';

type Answer<Op> = Extract<HostMessage, { op: Op }>;

export abstract class MessageConnection implements WorkerConnection {
  worker = '';
  role: string | undefined;
  storeId = '';
  readonly #closed = deferred<HostError | undefined>();
  readonly closed = this.#closed.promise;
  readonly #handlers: ConnectionHandlers;
  readonly #pending: PendingAnswers<HostMessage>;
  /** This side closes the connection, or it has ended. */
  protected isClosing = false;

  constructor(clock: Clock, answerMs: number, handlers: ConnectionHandlers) {
    this.#handlers = handlers;
    this.#pending = new PendingAnswers(clock, answerMs, () => noAnswer(answerMs));
  }

  /** A message that cannot be sent any more is dropped. `sent`: it has left this process, which takes a while on a slow network. */
  protected abstract send(message: WorkerMessage, sent?: () => void): void;
  protected abstract disconnect(): Promise<void>;

  async call(request: CallRequest): Promise<Receipt> {
    const { owner, storeId, seen } = await this.#request<'receipt'>(request.key, { op: 'call', ...request });
    this.welcomed({ worker: this.worker, role: this.role, storeId, seen });
    return { owner, storeId };
  }

  async ask(keys: readonly string[]): Promise<AskedCalls> {
    const id = newId();
    const { running, resend } = await this.#request<'asked'>(id, { op: 'ask', id, keys });
    return { running, resend };
  }

  async manifest(): Promise<Buffer> {
    const id = newId();
    return (await this.#request<'manifest'>(id, { op: 'manifest', id })).body;
  }

  cancel(key: string): void {
    this.send({ op: 'cancel', key });
  }

  acknowledge(keys: readonly string[]): void {
    this.send({ op: 'ack', keys });
  }

  async close(): Promise<void> {
    this.isClosing = true;
    await this.disconnect();
    await this.closed;
  }

  protected welcomed({ worker, role, storeId }: Welcome): void {
    Object.assign(this, { worker, role, storeId });
  }

  /** Undefined: an operation of a newer host. */
  protected heard(message: HostMessage | undefined): void {
    switch (message?.op) {
      case 'receipt':
      case 'refused':
        return this.#pending.resolve(message.key, message);
      case 'asked':
      case 'manifest':
        return this.#pending.resolve(message.id, message);
      case 'reply':
        return this.#handlers.reply(message.key, message.body, message.digest);
      case 'progress':
        return this.#handlers.progress(message.key, message.params);
      case 'manifest_changed':
        return this.#handlers.manifestChanged(message.revision);
      case 'serving':
        return this.#pending.rejectAll(unheard());
      default:
        return undefined;
    }
  }

  /** The connection has ended. `error`: why, unless this side closed it; `unanswered`: what that means for requests. */
  protected ended(error: HostError | undefined, unanswered: HostError): void {
    this.isClosing = true;
    this.#pending.rejectAll(unanswered);
    this.#closed.resolve(error);
  }

  async #request<Op extends HostMessage['op']>(id: string, message: WorkerMessage): Promise<Answer<Op>> {
    if (this.isClosing) throw notSent();
    const waiting = this.#pending.wait(id, false);
    this.send(message, () => this.#pending.sent(id));
    const answer = await waiting;
    if (answer.op === 'refused') throw answer.error;
    return answer as Answer<Op>;
  }
}

const noAnswer = (afterMs: number): HostError =>
  new HostError('transport', `no host answered within ${afterMs / 1_000} s`, {
    ...{ reason: 'no_answer', execution: 'uncertain', hint: 'the worker sends it again by itself' },
  });

/** A host began to serve, which may have come too late for these requests. */
const unheard = (): HostError =>
  new HostError('transport', 'a host began to serve after the request was sent', {
    ...{ execution: 'uncertain', retryAfterMs: 0, hint: 'the worker sends it again by itself' },
  });

const notSent = (): HostError =>
  notExecuted('transport', 'the connection to the broker is closed', undefined, { reason: 'closed' });
