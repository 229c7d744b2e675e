/** A transport within the process: both sides of the protocol without bytes, with simulated network faults. */
import type { CallRequest, HostMessage } from '../../src/broker/protocol/messages.js';
import type {
  AskedCalls,
  ServiceHandlers,
  WorkerIdentity,
  WorkerSession,
  WorkerTransport,
} from '../../src/broker/service/transport.js';
import type {
  ConnectionHandlers,
  OpenConnection,
  OpenConnectionOptions,
  Receipt,
  WorkerConnection,
} from '../../src/broker/worker/connection.js';
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

  /** Passes a request to the service. Resolves when it is answered. */
  answer<Answer>(begin: (done: (answer: Answer) => void, failed: (error: HostError) => void) => void): Promise<Answer> {
    if (this.#isStopping)
      return Promise.reject(new HostError('transport', 'the host stops', { execution: 'not_executed' }));
    return new Promise<Answer>(begin);
  }

  #connect(identity: WorkerIdentity, { session: id, handlers }: OpenConnectionOptions): MemoryConnection {
    const place = `${identity.name} ${id}`;
    this.current.get(place)?.end(new HostError('transport', 'replaced', { reason: 'replaced' }));
    const hostSession: WorkerSession = {
      ...{ id, name: identity.name, epoch: identity.epoch },
      identity: () => (this.revoked.has(identity.name) ? undefined : identity),
      send: (message) => this.current.get(place)?.deliver(message) ?? false,
    };
    const connection = new MemoryConnection(this, place, identity, hostSession, handlers);
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
  readonly #handlers: ConnectionHandlers;
  readonly #pending = new Set<(error: HostError) => void>();
  #isOver = false;
  #settleClosed: (error: HostError | undefined) => void = () => {};

  constructor(
    transport: MemoryTransport,
    place: string,
    identity: WorkerIdentity,
    hostSession: WorkerSession,
    handlers: ConnectionHandlers,
  ) {
    this.#transport = transport;
    this.#place = place;
    this.identity = identity;
    this.hostSession = hostSession;
    this.#handlers = handlers;
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

  call(request: CallRequest): Promise<Receipt> {
    const { handlers, storeId } = this.#transport;
    return this.#request<Receipt>((done, failed) =>
      handlers.call({
        ...{ session: this.hostSession, request, refuse: failed },
        receipt: (owner) => {
          if (!this.#transport.losesReceipts) done({ owner, storeId });
        },
      }),
    );
  }

  ask(keys: readonly string[]): Promise<AskedCalls> {
    return this.#request((done) => void this.#transport.handlers.ask(this.hostSession, keys).then(done));
  }

  manifest(): Promise<Buffer> {
    return this.#request((done) => void this.#transport.handlers.manifest(this.hostSession).then(done));
  }

  cancel(key: string): void {
    if (this.#reaches) this.#transport.handlers.cancel(this.hostSession, key);
  }

  acknowledge(keys: readonly string[]): void {
    if (this.#reaches) this.#transport.handlers.acknowledge(this.hostSession, keys);
  }

  async close(): Promise<void> {
    this.end(undefined);
  }

  /** Ends the connection for both sides. */
  end(error: HostError | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    for (const fail of [...this.#pending]) fail(closedError());
    if (this.#transport.current.get(this.#place) === this) this.#transport.current.delete(this.#place);
    this.#transport.handlers.left(this.hostSession, error?.details.reason ?? 'closed');
    this.#settleClosed(error);
  }

  deliver(message: HostMessage): boolean {
    if (this.#isOver || (message.op === 'reply' && this.#transport.losesReplies)) return false;
    queueMicrotask(() => {
      if (this.#isOver) return;
      if (message.op === 'reply') this.#handlers.reply(message.key, message.body);
      else if (message.op === 'progress') this.#handlers.progress(message.key, message.params);
      else if (message.op === 'manifest_changed') this.#handlers.manifestChanged(message.revision);
    });
    return true;
  }

  get #reaches(): boolean {
    return !this.#isOver && !this.#transport.isBlackHole;
  }

  #request<Answer>(
    begin: (done: (answer: Answer) => void, failed: (error: HostError) => void) => void,
  ): Promise<Answer> {
    if (this.#isOver) return Promise.reject(closedError().with({ execution: 'not_executed' }));
    return new Promise((resolve, reject) => {
      const fail = (error: HostError) => {
        this.#pending.delete(fail);
        reject(error);
      };
      this.#pending.add(fail);
      if (!this.#reaches) return;
      this.#transport.answer(begin).then((answer) => {
        this.#pending.delete(fail);
        resolve(answer);
      }, fail);
    });
  }
}
