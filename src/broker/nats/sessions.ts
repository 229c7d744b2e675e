/**
 * Sessions of workers on NATS. A host does not see their connections: a session lives as long as its worker repeats its hello.
 * Invariant: a worker that makes many sessions loses its own oldest ones, and none of another worker.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import type { Identities } from '../identities.js';
import type { HostMessage } from '../protocol/messages.js';
import type { ServiceHandlers, WorkerSession } from '../service/transport.js';
import { sessionSubject } from './names.js';

export interface SessionsOptions {
  readonly clock: Clock;
  readonly identities: Identities;
  readonly handlers: Pick<ServiceHandlers, 'connected' | 'left'>;
  /** `worker`: the same for all sessions of a worker. */
  readonly publish: (worker: string, subject: string, message: HostMessage) => boolean;
}

export interface NatsSession extends WorkerSession {
  seenAtMs: number;
  /** The newest connection. Undefined: the session did not say hello to this host yet. */
  connection: string | undefined;
}

/** A worker says hello this often. */
export const helloMs = 10_000;
const silentMs = 3 * helloMs;
const sessionsPerWorker = 64;

export class Sessions {
  /** By worker and epoch, then by session; the one that was seen last is at the end. */
  readonly #workers = new Map<string, Map<string, NatsSession>>();
  #cancel: Cancel | undefined;

  constructor(private readonly options: SessionsOptions) {
    this.#sweepLater();
  }

  get count(): number {
    return this.#workers.size;
  }

  /** Undefined: the worker has no valid key with this epoch. */
  of(name: string, epoch: string, id: string): NatsSession | undefined {
    const { identities, clock } = this.options;
    if (!identities.current(name, epoch)) return undefined;
    const sessions = this.#workers.get(`${name}.${epoch}`) ?? new Map<string, NatsSession>();
    this.#workers.set(`${name}.${epoch}`, sessions);
    const session = sessions.get(id) ?? this.#newSession(name, epoch, id);
    session.seenAtMs = clock.nowMs();
    // The only session of a worker keeps its place: moving it for each message makes garbage.
    if (sessions.size > 1) sessions.delete(id);
    sessions.set(id, session);
    if (sessions.size > sessionsPerWorker) this.drop(sessions.values().next().value ?? session, 'too_many_sessions');
    return session;
  }

  /** Call it when the session said hello. */
  connected(session: NatsSession, connection: string): void {
    if (session.connection === connection) return;
    if (session.connection !== undefined) this.options.handlers.left(session, 'replaced');
    session.connection = connection;
    this.options.handlers.connected(session);
  }

  /** Call it when a connection of the session is closed. The session may have a newer one. */
  left(session: NatsSession, connection: string): void {
    if (session.connection === connection) this.drop(session, 'closed');
  }

  drop(session: NatsSession, reason: string): void {
    const worker = `${session.name}.${session.epoch}`;
    const sessions = this.#workers.get(worker);
    if (!sessions?.delete(session.id)) return;
    if (sessions.size === 0) this.#workers.delete(worker);
    if (session.connection !== undefined) this.options.handlers.left(session, reason);
  }

  dropRevoked(): void {
    for (const session of this.#all()) if (!session.identity()) this.drop(session, 'revoked');
  }

  close(): void {
    this.#cancel?.();
    for (const session of this.#all()) this.drop(session, 'going_away');
  }

  #newSession(name: string, epoch: string, id: string): NatsSession {
    const { identities, publish } = this.options;
    const identity = () => identities.current(name, epoch);
    const subject = sessionSubject(name, epoch, id);
    const worker = `${name}.${epoch}`;
    const send = (message: HostMessage): boolean => publish(worker, subject, message);
    return { id, name, epoch, seenAtMs: 0, connection: undefined, identity, send };
  }

  #sweepLater(): void {
    const { clock } = this.options;
    this.#cancel = clock.at(clock.nowMs() + helloMs, () => {
      for (const session of this.#all()) if (clock.nowMs() - session.seenAtMs > silentMs) this.drop(session, 'silent');
      this.#sweepLater();
    });
  }

  #all(): NatsSession[] {
    return [...this.#workers.values()].flatMap((sessions) => [...sessions.values()]);
  }
}
