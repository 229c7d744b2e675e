/**
 * Serves workers over WebSocket: admits their connections, and keeps the current connection of each session.
 * Not here: the port (listen.ts), messages (host-connection.ts), calls (service/).
 *
 * Invariants: a new connection of a session ends the old one before anything of the new one is read; the end of a replaced
 * connection changes nothing; a worker is cut when its key is revoked or expires.
 */
import type { Duplex } from 'node:stream';
import type { WebSocket } from 'ws';
import { digestOf } from '../../config/keys.js';
import type { Clock } from '../../kernel/clock.js';
import type { BrokerEvent, TurnedAway } from '../broker-events.js';
import type { Identities } from '../identities.js';
import type { Hello, HostMessage } from '../protocol/messages.js';
import type { ServiceHandlers, WorkerIdentity, WorkerSession, WorkerTransport } from '../service/transport.js';
import { type ConnectionParts, HostConnection } from './host-connection.js';
import { connectionsOfWorkerMax } from './limits.js';
import { type ListenOptions, listenForWorkers } from './listen.js';
import { WorkerTraffic } from './worker-traffic.js';

export interface WebSocketTransportOptions {
  readonly listen: ListenOptions;
  readonly identities: Pick<Identities, 'ofDigest' | 'current' | 'onChange'>;
  readonly limits: { readonly connections: number; readonly bytesPerSecond: number };
  /** Id of the log of calls, told to each worker. */
  readonly storeId: string;
  readonly handlers: ServiceHandlers;
  readonly clock: Clock;
  readonly onEvent?: ((event: BrokerEvent) => void) | undefined;
}

export async function openWebSocketTransport(options: WebSocketTransportOptions): Promise<WebSocketTransport> {
  const transport = new WebSocketTransport(options);
  await transport.listen();
  return transport;
}

export class WebSocketTransport implements WorkerTransport {
  readonly #options: WebSocketTransportOptions;
  /** All sockets after their upgrade, admitted or not. */
  readonly #all = new Set<HostConnection>();
  /** Admitted connections by session. */
  readonly #current = new Map<string, HostConnection>();
  readonly #traffic = new Map<string, WorkerTraffic>();
  readonly #outbound = { bytes: 0 };
  #listener: Awaited<ReturnType<typeof listenForWorkers>> | undefined;
  #offChange = () => {};
  #isStopping = false;

  constructor(options: WebSocketTransportOptions) {
    this.#options = options;
  }

  async listen(): Promise<void> {
    const { listen, clock, limits, identities, onEvent } = this.#options;
    this.#listener = await listenForWorkers({
      ...{ ...listen, clock, connectionsMax: limits.connections },
      hasRoom: () => this.#hasRoom(),
      turnedAway: (reason) => this.#turnAway(reason),
      onProblem: (error) => onEvent?.({ kind: 'problem', error }),
      accept: (...upgraded) => this.#accept(...upgraded),
    });
    this.#offChange = identities.onChange(() => this.#cutInvalid());
  }

  /** Where workers on this machine connect. */
  get url(): string {
    return this.#listener?.url ?? '';
  }

  /** One worker may have several. */
  get connections(): number {
    return this.#current.size;
  }

  get connectedWorkers(): number {
    return [...this.#traffic.values()].filter(({ connections }) => connections > 0).length;
  }

  notify(isWanted: (identity: WorkerIdentity) => boolean, message: HostMessage): void {
    for (const { admitted } of this.#current.values()) {
      const identity = admitted?.session.identity();
      if (identity && isWanted(identity)) admitted?.session.send(message);
    }
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
  }

  async close(): Promise<void> {
    this.#offChange();
    for (const connection of [...this.#all]) connection.cut(connection.isAnswered ? 'going_away' : 'stopped');
    await this.#listener?.close();
  }

  /** Sockets that are not admitted have bounds of their own: without a key, nothing takes the room of workers. */
  #hasRoom(): boolean {
    return this.#current.size < this.#options.limits.connections;
  }

  #accept(socket: WebSocket, below: Duplex, admit: () => void): void {
    const { clock, storeId, handlers } = this.#options;
    const parts: ConnectionParts = {
      ...{ clock, storeId, handlers, isStopping: () => this.#isStopping },
      hello: (said) => this.#hello(connection, said, admit),
      turnedAway: (reason) => this.#turnAway(reason),
      ended: (reason) => this.#ended(connection, reason),
    };
    const connection = new HostConnection(parts, socket, below);
    this.#all.add(connection);
  }

  #hello(connection: HostConnection, { key, session: id }: Hello, admit: () => void): void {
    const { identities, handlers } = this.#options;
    const keyDigest = digestOf(key);
    const identity = identities.ofDigest(keyDigest);
    if (!identity) {
      this.#turnAway('unknown_key');
      return connection.cut('unauthenticated');
    }
    const { name, epoch } = identity;
    const session: WorkerSession = {
      ...{ id, name, epoch },
      identity: () => identities.current(name, epoch),
      // The session may have another connection by now.
      send: (message) => this.#current.get(sessionKey(session))?.send(message) ?? false,
    };
    this.#current.get(sessionKey(session))?.cut('replaced');
    const tooMany = (what: string): void => {
      this.#turnAway('too_many_connections');
      connection.cut('too_many_connections', what);
    };
    // Other sockets may have been admitted since the upgrade.
    if (!this.#hasRoom()) return tooMany(`${this.#options.limits.connections} in all`);
    const traffic = this.#trafficOf(name);
    if (traffic.connections >= connectionsOfWorkerMax) return tooMany(`${connectionsOfWorkerMax} with this key`);
    admit();
    this.#current.set(sessionKey(session), connection);
    connection.admit({ keyDigest, session, traffic });
    handlers.connected(session);
  }

  #trafficOf(worker: string): WorkerTraffic {
    const { clock, limits } = this.#options;
    const idle = () => this.#traffic.delete(worker);
    const parts = { clock, bytesPerSecond: limits.bytesPerSecond, outbound: this.#outbound, idle };
    const traffic = this.#traffic.get(worker) ?? new WorkerTraffic(parts);
    this.#traffic.set(worker, traffic);
    return traffic;
  }

  #ended(connection: HostConnection, reason: string): void {
    this.#all.delete(connection);
    const { session } = connection.admitted ?? {};
    if (!session) return;
    if (this.#current.get(sessionKey(session)) === connection) this.#current.delete(sessionKey(session));
    this.#options.handlers.left(session, reason);
  }

  #turnAway(reason: TurnedAway): void {
    this.#options.onEvent?.({ kind: 'turned_away', reason });
  }

  /** Cuts connections whose key was revoked, has expired, or belongs to another worker now. */
  #cutInvalid(): void {
    for (const connection of [...this.#current.values()]) {
      const { keyDigest = '', session } = connection.admitted ?? {};
      const identity = this.#options.identities.ofDigest(keyDigest);
      if (identity?.name !== session?.name || identity?.epoch !== session?.epoch) connection.cut('revoked');
    }
  }
}

const sessionKey = ({ name, epoch, id }: WorkerSession): string => `${name} ${epoch} ${id}`;
