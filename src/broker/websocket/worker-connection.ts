/**
 * A worker's connection to a host over WebSocket.
 * Not here: connecting again, sending calls again (worker/).
 *
 * Invariants: every promise settles, with its answer, after `answerMs`, or with the connection. `not_executed` is said of a call only if
 * it was not written, or if the host closed the connection and had not read it.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import { newId } from '../../kernel/random.js';
import { joinedParts } from '../../wire/json-edit.js';
import {
  type CallRequest,
  type HostMessage,
  readHostMessage,
  type Welcome,
  type WorkerMessage,
  writeMessage,
} from '../protocol/messages.js';
import type { AskedCalls } from '../service/transport.js';
import type { ConnectionHandlers, OpenConnection, Receipt, WorkerConnection } from '../worker/connection.js';
import { type CloseReason, closeError, lostConnection } from './close-reasons.js';
import { cancelledConnect, checkedUrl, type OpenSocket, openSocket, timeoutError } from './connect.js';
import { FrameSocket, type FrameSocketReader } from './frame-socket.js';
import { answerMs } from './limits.js';

export interface WebSocketConnectionOptions {
  readonly url: string;
  readonly key: string;
  readonly clock: Clock;
  /** Sends the key in the clear, also to another machine. */
  readonly insecure?: boolean | undefined;
}

/** Throws if the address cannot be used. */
export function openWebSocketConnection(options: WebSocketConnectionOptions): OpenConnection {
  const { key, clock, insecure = false } = options;
  const url = checkedUrl(options.url, insecure);
  return async ({ session, handlers, signal }) => {
    const connection = new SocketConnection(await openSocket(url, clock, signal), clock, handlers);
    const onAbort = () => connection.giveUp(cancelledConnect());
    const cancelLimit = clock.at(clock.nowMs() + answerMs, () => connection.giveUp(timeoutError(url)));
    signal.addEventListener('abort', onAbort, { once: true });
    try {
      await connection.hello({ op: 'hello', key, session });
    } finally {
      cancelLimit();
      signal.removeEventListener('abort', onAbort);
    }
    return connection;
  };
}

class SocketConnection implements WorkerConnection, FrameSocketReader {
  readonly closed: Promise<HostError | undefined>;
  readonly #socket: FrameSocket;
  readonly #handlers: ConnectionHandlers;
  readonly #calls: PendingAnswers<Receipt>;
  readonly #asks: PendingAnswers<AskedCalls>;
  readonly #manifests: PendingAnswers<Buffer>;
  #welcome: Welcome | undefined;
  #welcomed: () => void = () => {};
  #isOver = false;
  /** Why this side gave the connection up. */
  #ownError: HostError | undefined;
  #settleClosed: (error: HostError | undefined) => void = () => {};

  constructor({ socket, below }: OpenSocket, clock: Clock, handlers: ConnectionHandlers) {
    this.#handlers = handlers;
    this.closed = new Promise((resolve) => {
      this.#settleClosed = resolve;
    });
    this.#calls = new PendingAnswers(clock, answerMs, () => noAnswer('receipt'));
    this.#asks = new PendingAnswers(clock, answerMs, () => noAnswer('answer'));
    this.#manifests = new PendingAnswers(clock, answerMs, () => noAnswer('manifest'));
    this.#socket = new FrameSocket(socket, below, clock, this);
  }

  get worker(): string {
    return this.#welcome?.worker ?? '';
  }

  get role(): string | undefined {
    return this.#welcome?.role;
  }

  get storeId(): string {
    return this.#welcome?.storeId ?? '';
  }

  /** Resolves with the welcome. */
  hello(message: WorkerMessage): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#welcomed = resolve;
      void this.closed.then((error) => reject(error ?? lostConnection('closed')));
      this.#send(message);
    });
  }

  giveUp(error: HostError): void {
    this.#ownError ??= error;
    this.#socket.close('bad_frame', error.message);
  }

  call(request: CallRequest): Promise<Receipt> {
    return this.#request(this.#calls, request.key, { op: 'call', ...request });
  }

  ask(_owner: string, keys: readonly string[]): Promise<AskedCalls> {
    const id = newId();
    return this.#request(this.#asks, id, { op: 'ask', id, keys });
  }

  manifest(): Promise<Buffer> {
    const id = newId();
    return this.#request(this.#manifests, id, { op: 'manifest', id });
  }

  cancel(key: string): void {
    this.#send({ op: 'cancel', key });
  }

  taken(keys: readonly string[]): void {
    this.#send({ op: 'taken', keys });
  }

  async close(): Promise<void> {
    this.#isOver = true;
    this.#socket.close('closed');
    await this.closed;
  }

  frame(bytes: Buffer | undefined): void {
    try {
      if (bytes === undefined) throw new HostError('protocol_error', 'the broker sent a binary message');
      const message = readHostMessage(bytes);
      if (this.#welcome) return this.#read(message);
      if (message?.op !== 'welcome') throw noBroker();
      this.#welcome = message;
      this.#welcomed();
    } catch (error) {
      this.giveUp(isHostError(error) ? error : new HostError('protocol_error', 'a message could not be read'));
    }
  }

  ended(reason: CloseReason | undefined, code: number, text: string): void {
    this.#isOver = true;
    // A host that goes away has answered every call that it read.
    const execution = reason === 'going_away' ? 'not_executed' : 'uncertain';
    const lost = lostConnection(reason ?? `closed_${code}`).with({ execution });
    for (const pending of [this.#calls, this.#asks, this.#manifests]) pending.failAll(lost);
    this.#settleClosed(this.#ownError ?? (reason === 'closed' ? undefined : closeError(reason, code, text)));
  }

  #request<Answer>(pending: PendingAnswers<Answer>, id: string, message: WorkerMessage): Promise<Answer> {
    if (this.#isOver) return Promise.reject(lostConnection('closed').with({ execution: 'not_executed' }));
    const answer = pending.wait(id);
    this.#send(message);
    return answer;
  }

  #send(message: WorkerMessage): void {
    this.#socket.send(joinedParts(writeMessage(message)));
  }

  #read(message: HostMessage | undefined): void {
    switch (message?.op) {
      case 'receipt':
        return this.#calls.resolve(message.key, { owner: message.owner, storeId: message.storeId });
      case 'refused':
        return this.#calls.reject(message.key, message.error);
      case 'reply':
        return this.#handlers.reply(message.key, message.body, message.digest);
      case 'asked':
        return this.#asks.resolve(message.id, { running: message.running, resend: message.resend });
      case 'manifest':
        return this.#manifests.resolve(message.id, message.body);
      case 'progress':
        return this.#handlers.progress(message.key, message.params);
      case 'manifest_changed':
        return this.#handlers.manifestChanged(message.revision);
      default:
        return undefined;
    }
  }
}

const noBroker = (): HostError =>
  new HostError('protocol_error', 'the server at this address did not answer as a broker', {
    execution: 'not_executed',
    hint: 'use the address that hostler up prints for workers',
  });

const noAnswer = (what: string): HostError =>
  new HostError('transport', `the host sent no ${what} within ${answerMs / 1_000} s`, {
    reason: 'no_answer',
    execution: 'uncertain',
    hint: 'the worker sends it again by itself',
  });

interface Waiter<Answer> {
  readonly untilMs: number;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: HostError) => void;
}

/** Requests that wait for their answers, by id. One timer serves all: the oldest is first in the map. Every promise settles. */
class PendingAnswers<Answer> {
  readonly #clock: Clock;
  readonly #limitMs: number;
  readonly #late: () => HostError;
  readonly #waiters = new Map<string, Waiter<Answer>>();
  #cancel: Cancel | undefined;

  constructor(clock: Clock, limitMs: number, late: () => HostError) {
    this.#clock = clock;
    this.#limitMs = limitMs;
    this.#late = late;
  }

  wait(id: string): Promise<Answer> {
    return new Promise((resolve, reject) => {
      // A call that is sent again over the same connection: the answer serves the later sending.
      this.#take(id)?.reject(this.#late());
      this.#waiters.set(id, { untilMs: this.#clock.nowMs() + this.#limitMs, resolve, reject });
      this.#cancel ??= this.#clock.at(this.#clock.nowMs() + this.#limitMs, () => this.#expire());
    });
  }

  resolve(id: string, answer: Answer): void {
    this.#take(id)?.resolve(answer);
  }

  reject(id: string, error: HostError): void {
    this.#take(id)?.reject(error);
  }

  failAll(error: HostError): void {
    this.#cancel?.();
    for (const id of [...this.#waiters.keys()]) this.reject(id, error);
  }

  #take(id: string): Waiter<Answer> | undefined {
    const waiter = this.#waiters.get(id);
    this.#waiters.delete(id);
    return waiter;
  }

  #expire(): void {
    this.#cancel = undefined;
    for (const [id, { untilMs }] of this.#waiters) {
      if (untilMs > this.#clock.nowMs()) {
        this.#cancel = this.#clock.at(untilMs, () => this.#expire());
        return;
      }
      this.reject(id, this.#late());
    }
  }
}
