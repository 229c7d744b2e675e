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
import type { Cancel, Clock } from '../../kernel/clock.js';
import type { BrokerEvent, TurnedAway } from '../broker-events.js';
import type { Identities } from '../identities.js';
import type { Hello, HostMessage } from '../protocol/messages.js';
import type { ServiceHandlers, WorkerIdentity, WorkerSession, WorkerTransport } from '../service/transport.js';
import { type ConnectionParts, HostConnection } from './host-connection.js';
import { connectionsOfWorkerMax } from './limits.js';
import { type Admission, type Listener, type ListenOptions, listenForWorkers } from './listen.js';
import { type Outbound, WorkerTraffic } from './worker-traffic.js';

export interface WebSocketTransportOptions {
  readonly listen: ListenOptions;
  readonly identities: Pick<Identities, 'ofDigest' | 'current' | 'expiryOf' | 'onChange'>;
  readonly limits: { readonly connections: number; readonly bytesPerSecond: number };
  /** Id of the log of calls, told to each worker. */
  readonly storeId: string;
  readonly handlers: ServiceHandlers;
  readonly clock: Clock;
  readonly onEvent?: ((event: BrokerEvent) => void) | undefined;
}

export interface WebSocketTransport extends WorkerTransport {
  /** Where workers on this machine connect. */
  readonly url: string;
  /** Connections in all: a worker may have several. */
  readonly connections: number;
}

export async function openWebSocketTransport(options: WebSocketTransportOptions): Promise<WebSocketTransport> {
  const transport = new Transport(options);
  await transport.listen();
  return transport;
}

class Transport implements WebSocketTransport {
  readonly #options: WebSocketTransportOptions;
  readonly #parts: Omit<ConnectionParts, 'hello'>;
  /** Every socket after its upgrade. */
  readonly #all = new Set<HostConnection>();
  /** Admitted connections by session. */
  readonly #current = new Map<string, HostConnection>();
  readonly #traffic = new Map<string, WorkerTraffic>();
  readonly #outbound: Outbound = { bytes: 0 };
  #listener: Listener | undefined;
  #cancelExpiry: Cancel = () => {};
  readonly #offChange: () => void;
  #stopped: (() => void) | undefined;

  constructor(options: WebSocketTransportOptions) {
    this.#options = options;
    const { clock, storeId, handlers } = options;
    this.#parts = {
      ...{ clock, storeId, handlers },
      badHello: (connection, why) => {
        this.#turnAway('bad_hello');
        connection.cut('bad_frame', why);
      },
      ended: (connection, reason) => this.#ended(connection, reason),
      idle: () => this.#settleStop(),
    };
    this.#offChange = options.identities.onChange(() => {
      const closed = this.#cutInvalid();
      options.onEvent?.({ kind: 'rekeyed', closed });
    });
  }

  async listen(): Promise<void> {
    const { listen, clock, limits } = this.#options;
    this.#listener = await listenForWorkers({
      ...listen,
      clock,
      connectionsMax: limits.connections,
      hasRoom: () => this.#all.size < limits.connections,
      turnedAway: (reason) => this.#turnAway(reason),
      accept: (socket, below, admission) => this.#accept(socket, below, admission),
    });
  }

  get url(): string {
    return this.#listener?.url ?? '';
  }

  get connections(): number {
    return this.#current.size;
  }

  get connectedWorkers(): number {
    let workers = 0;
    for (const { connections } of this.#traffic.values()) if (connections > 0) workers++;
    return workers;
  }

  notify(isWanted: (identity: WorkerIdentity) => boolean, message: HostMessage): void {
    for (const { admitted } of this.#current.values()) {
      const identity = admitted?.session.identity();
      if (identity && isWanted(identity)) admitted?.session.send(message);
    }
  }

  stop(): Promise<void> {
    const { clock } = this.#options;
    for (const connection of this.#all) connection.refuseNewCalls();
    return new Promise((resolve) => {
      // A log that hangs does not take the rest.
      const cancel = clock.at(clock.nowMs() + stopMs, resolve);
      this.#stopped = () => {
        cancel();
        resolve();
      };
      this.#settleStop();
    });
  }

  async close(): Promise<void> {
    this.#cancelExpiry();
    this.#offChange();
    const closed = this.#listener?.close();
    for (const connection of [...this.#all]) connection.cut(connection.unanswered === 0 ? 'going_away' : 'stopped');
    await closed;
  }

  #accept(socket: WebSocket, below: Duplex, admission: Admission): void {
    const hello = (connection: HostConnection, said: Hello) => this.#hello(connection, said, admission);
    const connection = new HostConnection({ ...this.#parts, hello }, socket, below);
    this.#all.add(connection);
    if (this.#stopped) connection.refuseNewCalls();
  }

  #hello(connection: HostConnection, { key, session: id }: Hello, admission: Admission): void {
    const { identities, handlers } = this.#options;
    const keyDigest = digestOf(key);
    const identity = identities.ofDigest(keyDigest);
    if (!identity) {
      admission.wrongKey();
      this.#turnAway('unknown_key');
      return connection.cut('unauthenticated');
    }
    const { name, epoch, role } = identity;
    const session = this.#session(id, name, epoch);
    this.#current.get(sessionKey(session))?.cut('replaced');
    const traffic = this.#trafficOf(name);
    if (traffic.connections >= connectionsOfWorkerMax) {
      this.#turnAway('too_many_connections');
      return connection.cut('too_many_connections', `${connectionsOfWorkerMax} with this key`);
    }
    admission.admitted();
    this.#current.set(sessionKey(session), connection);
    connection.admit({ keyDigest, role, session, traffic });
    this.#watchExpiry();
    handlers.connected(session);
  }

  #session(id: string, name: string, epoch: string): WorkerSession {
    const { identities } = this.#options;
    const session: WorkerSession = {
      ...{ id, name, epoch },
      identity: () => identities.current(name, epoch),
      // The session may have another connection by now.
      send: (message) => this.#current.get(sessionKey(session))?.send(message) ?? false,
    };
    return session;
  }

  #trafficOf(worker: string): WorkerTraffic {
    let traffic = this.#traffic.get(worker);
    if (!traffic) {
      const { clock, limits } = this.#options;
      traffic = new WorkerTraffic(clock, limits.bytesPerSecond, this.#outbound);
      this.#traffic.set(worker, traffic);
    }
    return traffic;
  }

  #ended(connection: HostConnection, reason: string): void {
    this.#all.delete(connection);
    const { admitted } = connection;
    if (!admitted) return this.#settleStop();
    const { session, traffic } = admitted;
    if (this.#current.get(sessionKey(session)) === connection) this.#current.delete(sessionKey(session));
    // A worker that connects again at once must not get a new rate.
    if (traffic.connections === 0 && !traffic.rate.isPaused) this.#traffic.delete(session.name);
    this.#options.handlers.left(session, reason);
    this.#settleStop();
  }

  #settleStop(): void {
    if (!this.#stopped) return;
    for (const { unanswered } of this.#all) if (unanswered > 0) return;
    this.#stopped();
  }

  #turnAway(reason: TurnedAway): void {
    this.#options.onEvent?.({ kind: 'turned_away', reason });
  }

  /** Keys that were revoked, have expired, or belong to another worker now. */
  #cutInvalid(): number {
    let cut = 0;
    for (const connection of [...this.#current.values()]) {
      const { keyDigest, session } = connection.admitted ?? {};
      const identity = keyDigest === undefined ? undefined : this.#options.identities.ofDigest(keyDigest);
      if (identity?.name === session?.name && identity?.epoch === session?.epoch) continue;
      connection.cut('revoked');
      cut++;
    }
    return cut;
  }

  #watchExpiry(): void {
    const { clock, identities } = this.#options;
    let nextMs = Number.POSITIVE_INFINITY;
    for (const { admitted } of this.#current.values())
      nextMs = Math.min(nextMs, identities.expiryOf(admitted?.keyDigest ?? '') ?? nextMs);
    this.#cancelExpiry();
    if (nextMs === Number.POSITIVE_INFINITY) return;
    // Looks every minute at least, because the wall clock may be set.
    const leftMs = Math.max(nextMs - clock.date().getTime(), 1);
    this.#cancelExpiry = clock.at(clock.nowMs() + Math.min(leftMs, expiryLookMs), () => {
      this.#cutInvalid();
      this.#watchExpiry();
    });
  }
}

const stopMs = 3_000;
const expiryLookMs = 60_000;

const sessionKey = ({ name, epoch, id }: WorkerSession): string => `${name} ${epoch} ${id}`;
