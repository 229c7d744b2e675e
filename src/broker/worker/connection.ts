/**
 * What a transport (websocket/, nats/) gives to a worker. Both pass test/contract/broker/transport.test.ts.
 * Not here: how messages travel; matching answers with requests and sending them again (call-table.ts, manifest-learner.ts).
 */
import type { CancelSignal } from '../../kernel/cancel-signal.js';
import { deferred } from '../../kernel/deferred.js';
import type { HostError } from '../../kernel/errors.js';
import type { HostMessage, Welcome, WorkerMessage } from '../protocol/messages.js';

export interface WorkerConnection {
  /** Name of this worker; its role, where the host tells it. */
  readonly worker: string;
  readonly role: string | undefined;
  /** Id of the store at the other end, as the host last told it. */
  readonly storeId: string;
  /** A request without an answer for this long is sent again. */
  readonly answerMs: number;
  /** Resolves with the reason when the connection has ended; undefined if it was closed from this side. */
  readonly closed: Promise<HostError | undefined>;
  /** After the end: no host has read the requests that have no answer. */
  readonly isUnread: boolean;
  /**
   * Returns false if the message certainly does not arrive. Any message may be lost. `sent`: the message has left this process, which takes a
   * while on a slow network.
   */
  send(message: WorkerMessage, sent?: () => void): boolean;
  close(): Promise<void>;
}

export interface OpenConnectionOptions {
  /** Random id of this worker process. */
  readonly session: string;
  /** Each message after the welcome, until the end. The same reply may come more than once. It must not throw. */
  readonly heard: (message: HostMessage) => void;
  readonly signal: CancelSignal;
}

/** Resolves when the worker is connected and admitted. Settles soon after `signal` aborts. */
export type OpenConnection = (options: OpenConnectionOptions) => Promise<WorkerConnection>;

/** What the connections of both transports share. */
export abstract class MessageConnection implements WorkerConnection {
  worker = '';
  role: string | undefined;
  storeId = '';
  isUnread = false;
  readonly #closed = deferred<HostError | undefined>();
  readonly closed = this.#closed.promise;
  /** This side closes the connection, or it has ended. */
  protected isClosing = false;

  constructor(
    readonly answerMs: number,
    private readonly toWorker: (message: HostMessage) => void,
  ) {}

  abstract send(message: WorkerMessage, sent?: () => void): boolean;
  protected abstract disconnect(): Promise<void>;

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
    const { worker, role } = this;
    if (message?.op === 'receipt') this.welcomed({ worker, role, storeId: message.storeId, seen: message.seen });
    if (message) this.toWorker(message);
  }

  /** The connection has ended. `error`: why, unless this side closed it. */
  protected ended(error: HostError | undefined): void {
    this.isClosing = true;
    this.#closed.resolve(error);
  }
}
