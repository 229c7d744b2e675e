/**
 * Serves workers over WebSocket: admits their connections, and keeps the current connection of each session.
 * Not here: the port (listen.ts), messages (host-connection.ts), calls (service/).
 *
 * Invariants: a new connection of a session ends the old one before anything of the new one is read; the end of a replaced
 * connection changes nothing; a worker is cut when its key is revoked or expires.
 */
import { digestOf } from '../../config/keys.js';
import type { Clock } from '../../kernel/clock.js';
import type { BrokerEvent } from '../broker-events.js';
import type { Identities } from '../identities.js';
import { idPattern } from '../protocol/limits.js';
import type { HostMessage } from '../protocol/messages.js';
import type { ServiceHandlers, WorkerIdentity, WorkerSession, WorkerTransport } from '../service/transport.js';
import { HostConnection } from './host-connection.js';
import { connectionsOfWorkerMax, sessionHeader } from './limits.js';
import { type ListenOptions, listenForWorkers, type Refusal, type ServeSocket } from './listen.js';
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
  /** By session. */
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
      turnedAway: (reason) => onEvent?.({ kind: 'turned_away', reason }),
      onProblem: (error) => onEvent?.({ kind: 'problem', error }),
      admit: (key, session) => this.#admit(key, session),
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
    for (const connection of this.#current.values()) {
      const identity = connection.parts.session.identity();
      if (identity && isWanted(identity)) connection.send(message);
    }
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
  }

  async close(): Promise<void> {
    this.#offChange();
    for (const connection of [...this.#current.values()])
      connection.cut(connection.isAnswered ? 'going_away' : 'stopped');
    await this.#listener?.close();
  }

  /** Sockets that are not admitted have bounds of their own: without a key, nothing takes the room of workers. */
  #admit(key: string, id: string): Refusal | ServeSocket {
    const { identities, limits } = this.#options;
    const keyDigest = digestOf(key);
    const identity = identities.ofDigest(keyDigest);
    if (!identity) return { status: 401, reason: 'unknown_key', text: 'the key is unknown, expired or revoked' };
    if (!idPattern.test(id)) return { status: 400, reason: 'bad_session', text: `${sessionHeader}: is not valid` };
    const { name, epoch } = identity;
    const session: WorkerSession = {
      ...{ id, name, epoch },
      identity: () => identities.current(name, epoch),
      // The session may have another connection by now.
      send: (message) => this.#current.get(sessionKey(session))?.send(message) ?? false,
    };
    const isNew = !this.#current.has(sessionKey(session));
    const tooMany = (text: string) => ({ status: 503, reason: 'too_many_connections', text }) as const;
    if (isNew && this.#current.size >= limits.connections)
      return tooMany('the broker has broker.limits.connections connections');
    if (isNew && (this.#traffic.get(name)?.connections ?? 0) >= connectionsOfWorkerMax)
      return tooMany(`this worker has ${connectionsOfWorkerMax} connections`);
    return (...upgraded) => this.#serve(keyDigest, session, ...upgraded);
  }

  #serve(keyDigest: string, session: WorkerSession, ...upgraded: Parameters<ServeSocket>): void {
    const { clock, storeId, handlers } = this.#options;
    this.#current.get(sessionKey(session))?.cut('replaced');
    const parts = { clock, keyDigest, session, handlers, traffic: this.#trafficOf(session.name) };
    const ended = (reason: string) => {
      if (this.#current.get(sessionKey(session)) === connection) this.#current.delete(sessionKey(session));
      handlers.left(session, reason);
    };
    const connection = new HostConnection({ ...parts, isStopping: () => this.#isStopping, ended }, ...upgraded);
    this.#current.set(sessionKey(session), connection);
    connection.send({ op: 'welcome', worker: session.name, role: session.identity()?.role, storeId });
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

  /** Cuts connections whose key was revoked, has expired, or belongs to another worker now. */
  #cutInvalid(): void {
    for (const connection of [...this.#current.values()]) {
      const { keyDigest, session } = connection.parts;
      const identity = this.#options.identities.ofDigest(keyDigest);
      if (identity?.name !== session.name || identity.epoch !== session.epoch) connection.cut('revoked');
    }
  }
}

const sessionKey = ({ name, epoch, id }: WorkerSession): string => `${name} ${epoch} ${id}`;
