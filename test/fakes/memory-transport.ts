/** A transport within the process: both sides of the protocol without bytes, with simulated network faults. */
import type { HostMessage, WorkerMessage } from '../../src/broker/protocol/messages.js';
import type {
  ServiceHandlers,
  WorkerIdentity,
  WorkerSession,
  WorkerTransport,
} from '../../src/broker/service/transport.js';
import type { OpenConnection, OpenConnectionOptions, WorkerConnection } from '../../src/broker/worker/connection.js';
import { HostError } from '../../src/kernel/errors.js';

const closedError = (): HostError =>
  new HostError('transport', 'the connection to the broker was lost', { reason: 'closed', execution: 'uncertain' });

export class MemoryTransport implements WorkerTransport {
  readonly handlers: ServiceHandlers;
  storeId: string;
  readonly current = new Map<string, MemoryConnection>();
  /** Every connection that was opened. */
  readonly opened: MemoryConnection[] = [];
  /** Attempts to connect. */
  attempts = 0;
  /** Why connections are refused. */
  refusal: HostError | undefined;
  /** Connections neither open nor fail. */
  isSilent = false;
  /** Receipts are lost. */
  losesReceipts = false;
  /** Replies are lost, as over a connection that ends at that moment. */
  losesReplies = false;
  /** Messages of the worker are lost without notice. */
  isBlackHole = false;
  readonly revoked = new Set<string>();
  #isStopping = false;

  constructor(handlers: ServiceHandlers, storeId = 'store-1') {
    this.handlers = handlers;
    this.storeId = storeId;
  }

  opener(identity: WorkerIdentity): OpenConnection {
    return async (options) => {
      this.attempts++;
      await undefined;
      if (this.isSilent) return new Promise((_resolve, reject) => options.signal.addEventListener('abort', reject));
      if (this.refusal) throw this.refusal;
      if (this.revoked.has(identity.name)) throw new HostError('unauthenticated', 'the broker refused the key');
      return this.#connect(identity, options);
    };
  }

  get connectedWorkers(): number {
    return new Set([...this.current.values()].map(({ identity }) => identity.name)).size;
  }

  notify(isWanted: (identity: WorkerIdentity) => boolean, message: HostMessage): void {
    for (const { identity, hostSession } of this.current.values()) if (isWanted(identity)) hostSession.send(message);
  }

  /** Ends every connection. */
  cut(error: HostError = closedError()): void {
    for (const connection of [...this.current.values()]) connection.end(error);
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
  }

  async close(): Promise<void> {
    this.cut();
  }

  get isStopping(): boolean {
    return this.#isStopping;
  }

  #connect(identity: WorkerIdentity, { session: id, heard }: OpenConnectionOptions): MemoryConnection {
    const place = `${identity.name} ${id}`;
    this.current.get(place)?.end(new HostError('transport', 'replaced', { reason: 'replaced' }));
    const hostSession: WorkerSession = {
      ...{ id, name: identity.name, epoch: identity.epoch },
      identity: () => (this.revoked.has(identity.name) ? undefined : identity),
      send: (message) => this.current.get(place)?.deliver(message) ?? false,
    };
    const connection = new MemoryConnection(this, place, identity, hostSession, heard);
    this.current.set(place, connection);
    this.opened.push(connection);
    this.handlers.connected(hostSession);
    return connection;
  }
}

export class MemoryConnection implements WorkerConnection {
  readonly closed: Promise<HostError | undefined>;
  readonly identity: WorkerIdentity;
  readonly hostSession: WorkerSession;
  readonly storeId: string;
  readonly #transport: MemoryTransport;
  readonly #place: string;
  readonly #heard: (message: HostMessage) => void;
  readonly answerMs = 10_000;
  isUnread = false;
  #isOver = false;
  #settleClosed: (error: HostError | undefined) => void = () => {};

  constructor(
    transport: MemoryTransport,
    place: string,
    identity: WorkerIdentity,
    hostSession: WorkerSession,
    heard: (message: HostMessage) => void,
  ) {
    this.#transport = transport;
    this.#place = place;
    this.identity = identity;
    this.hostSession = hostSession;
    this.#heard = heard;
    this.storeId = transport.storeId;
    this.closed = new Promise((resolve) => {
      this.#settleClosed = resolve;
    });
  }

  get worker(): string {
    return this.identity.name;
  }

  get role(): string | undefined {
    return this.identity.role;
  }

  send(message: WorkerMessage, sent?: () => void): boolean {
    if (this.#isOver || (this.#transport.isStopping && message.op === 'call')) return false;
    sent?.();
    if (!this.#transport.isBlackHole) this.#transport.handlers.heard(this.hostSession, message);
    return true;
  }

  async close(): Promise<void> {
    this.end(undefined);
  }

  /** Ends the connection for both sides. */
  end(error: HostError | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    if (this.#transport.current.get(this.#place) === this) this.#transport.current.delete(this.#place);
    this.#transport.handlers.left(this.hostSession, error?.details.reason ?? 'closed');
    this.#settleClosed(error);
  }

  deliver(message: HostMessage): boolean {
    if (this.#isOver || (message.op === 'reply' && this.#transport.losesReplies)) return false;
    if (message.op === 'receipt' && this.#transport.losesReceipts) return true;
    queueMicrotask(() => {
      if (!this.#isOver) this.#heard(message);
    });
    return true;
  }
}
