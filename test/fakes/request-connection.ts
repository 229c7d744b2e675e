/** A connection of a worker for tests of transports: each request is a promise, and the other messages go to the test. */
import type { AskedCalls, CallRequest, HostMessage, WorkerMessage } from '../../src/broker/protocol/messages.js';
import type { OpenConnection, WorkerConnection } from '../../src/broker/worker/connection.js';
import type { CancelSignal } from '../../src/kernel/cancel-signal.js';
import { type Clock, systemClock } from '../../src/kernel/clock.js';
import { HostError } from '../../src/kernel/errors.js';
import { newId } from '../../src/kernel/random.js';

export interface MessageHandlers {
  reply(key: string, body: Buffer): void;
  progress(key: string, params: Buffer): void;
  manifestChanged(revision: string): void;
}

export interface Receipt {
  readonly owner: string;
  readonly storeId: string;
}

interface Waiter {
  readonly resolve: (answer: HostMessage) => void;
  readonly reject: (error: HostError) => void;
}

type Answer<Op> = Extract<HostMessage, { op: Op }>;

export class RequestConnection {
  readonly closed: Promise<HostError | undefined>;
  readonly #connection: WorkerConnection;
  /** By key or id. */
  readonly #waiters: Map<string, Waiter>;

  private constructor(
    connection: WorkerConnection,
    waiters: Map<string, Waiter>,
    private readonly clock: Clock,
  ) {
    this.#connection = connection;
    this.#waiters = waiters;
    this.closed = connection.closed.then((error) => {
      const execution = connection.isUnread ? 'not_executed' : 'uncertain';
      this.failAll(new HostError('transport', 'the connection was lost', { execution }));
      return error;
    });
  }

  static async open(
    open: OpenConnection,
    options: {
      readonly session: string;
      readonly signal: CancelSignal;
      readonly handlers: MessageHandlers;
      readonly clock?: Clock;
    },
  ): Promise<RequestConnection> {
    const { session, signal, handlers, clock = systemClock } = options;
    const waiters = new Map<string, Waiter>();
    const answered = (id: string, message: HostMessage) => {
      const waiter = waiters.get(id);
      waiters.delete(id);
      if (message.op === 'refused') waiter?.reject(message.error);
      else waiter?.resolve(message);
    };
    const heard = (message: HostMessage): void => {
      if (message.op === 'receipt' || message.op === 'refused') answered(message.key, message);
      else if (message.op === 'asked' || message.op === 'manifest') answered(message.id, message);
      else if (message.op === 'reply') handlers.reply(message.key, message.body);
      else if (message.op === 'progress') handlers.progress(message.key, message.params);
      else if (message.op === 'manifest_changed') handlers.manifestChanged(message.revision);
      else if (message.op === 'serving')
        connection?.failAll(new HostError('transport', 'a host began to serve', { retryAfterMs: 0 }));
    };
    let connection: RequestConnection | undefined;
    connection = new RequestConnection(await open({ session, signal, heard }), waiters, clock);
    return connection;
  }

  get worker(): string {
    return this.#connection.worker;
  }

  get role(): string | undefined {
    return this.#connection.role;
  }

  get storeId(): string {
    return this.#connection.storeId;
  }

  async call(request: CallRequest, sent?: () => void): Promise<Receipt> {
    const { owner, storeId } = await this.#request<'receipt'>(request.key, { op: 'call', ...request }, sent);
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
    this.#connection.send({ op: 'cancel', key });
  }

  acknowledge(keys: readonly string[]): void {
    this.#connection.send({ op: 'ack', keys });
  }

  close(): Promise<void> {
    return this.#connection.close();
  }

  #request<Op extends HostMessage['op']>(id: string, message: WorkerMessage, sent?: () => void): Promise<Answer<Op>> {
    return new Promise((resolve, reject) => {
      this.#waiters.set(id, { resolve: (answer) => resolve(answer as Answer<Op>), reject });
      const late = new HostError('transport', 'no host answered', { reason: 'no_answer', execution: 'uncertain' });
      const leave = () => {
        sent?.();
        this.clock.at(this.clock.nowMs() + this.#connection.answerMs, () => reject(late));
      };
      if (this.#connection.send(message, leave)) return;
      this.#waiters.delete(id);
      reject(new HostError('transport', 'the message was not sent', { execution: 'not_executed' }));
    });
  }

  failAll(error: HostError): void {
    for (const { reject } of this.#waiters.values()) reject(error);
    this.#waiters.clear();
  }
}
