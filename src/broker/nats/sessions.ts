/**
 * Sessions of workers on NATS. A host does not see their connections: a session is there while it says hello.
 * Invariant: a worker that makes many sessions loses its own oldest ones, and none of another worker.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import type { Identities } from '../identities.js';
import type { HostMessage } from '../protocol/messages.js';
import type { WorkerSession } from '../service/transport.js';

export interface SessionsOptions {
  readonly clock: Clock;
  readonly identities: Identities;
  readonly publish: (session: WorkerSession, message: HostMessage) => boolean;
  readonly onLeft: (session: WorkerSession) => void;
}

interface Entry {
  readonly session: WorkerSession;
  seenAtMs: number;
  connection: string | undefined;
}

/** A worker says hello this often. */
export const helloMs = 10_000;
const silentMs = 3 * helloMs;
const sessionsPerWorker = 64;

export class Sessions {
  readonly #options: SessionsOptions;
  /** By worker, then by session; the one that was seen last is at the end. */
  readonly #workers = new Map<string, Map<string, Entry>>();
  #cancel: Cancel | undefined;

  constructor(options: SessionsOptions) {
    this.#options = options;
    this.#sweepLater();
  }

  get count(): number {
    return this.#workers.size;
  }

  /** Undefined: the worker has no valid key with this epoch. */
  of(
    name: string,
    epoch: string,
    id: string,
  ): { readonly session: WorkerSession; readonly isFirst: boolean } | undefined {
    const { identities, clock } = this.#options;
    if (!identities.current(name, epoch)) return undefined;
    const worker = workerOf({ name, epoch });
    const sessions = this.#workers.get(worker) ?? new Map<string, Entry>();
    this.#workers.set(worker, sessions);
    const known = sessions.get(id);
    const entry = known ?? { session: this.#newSession(name, epoch, id), seenAtMs: 0, connection: undefined };
    entry.seenAtMs = clock.nowMs();
    sessions.delete(id);
    sessions.set(id, entry);
    const [oldest] = sessions.values();
    if (sessions.size > sessionsPerWorker && oldest) this.drop(oldest.session);
    return { session: entry.session, isFirst: known === undefined };
  }

  /** The session has this connection now. */
  connected(session: WorkerSession, connection: string): void {
    const entry = this.#workers.get(workerOf(session))?.get(session.id);
    if (entry) entry.connection = connection;
  }

  /** The session leaves, unless it has a newer connection. */
  disconnected(session: WorkerSession, connection: string): void {
    const entry = this.#workers.get(workerOf(session))?.get(session.id);
    if (entry?.connection === connection) this.drop(session);
  }

  drop(session: WorkerSession): void {
    const sessions = this.#workers.get(workerOf(session));
    if (sessions?.get(session.id)?.session !== session) return;
    sessions.delete(session.id);
    if (sessions.size === 0) this.#workers.delete(workerOf(session));
    this.#options.onLeft(session);
  }

  dropRevoked(): void {
    for (const { session } of this.#all()) if (!session.identity()) this.drop(session);
  }

  close(): void {
    this.#cancel?.();
    for (const { session } of this.#all()) this.drop(session);
  }

  #newSession(name: string, epoch: string, id: string): WorkerSession {
    const { identities, publish } = this.#options;
    const session: WorkerSession = {
      ...{ id, name, epoch },
      identity: () => identities.current(name, epoch),
      send: (message) => publish(session, message),
    };
    return session;
  }

  #sweepLater(): void {
    const { clock } = this.#options;
    this.#cancel = clock.at(clock.nowMs() + helloMs, () => {
      for (const { session, seenAtMs } of this.#all()) if (clock.nowMs() - seenAtMs > silentMs) this.drop(session);
      this.#sweepLater();
    });
  }

  #all(): Entry[] {
    return [...this.#workers.values()].flatMap((sessions) => [...sessions.values()]);
  }
}

const workerOf = ({ name, epoch }: { readonly name: string; readonly epoch: string }): string => `${name}.${epoch}`;
