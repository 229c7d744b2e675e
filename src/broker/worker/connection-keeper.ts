/**
 * Keeps a worker connected: opens a connection, learns the manifest over it, and opens the next one when it is lost, for ever.
 * Not here: calls (call-table.ts), delays (reconnect-plan.ts).
 *
 * Invariants: connection and manifest change as one object. A connection is over when it says so, or when it was not opened in time.
 * A refused key is tried again, after longer delays.
 */
import { Cancellation } from '../../kernel/cancel-signal.js';
import { type Clock, sleep } from '../../kernel/clock.js';
import { HostError, isHostError, notExecuted, withoutStack } from '../../kernel/errors.js';
import type { Random } from '../../kernel/random.js';
import type { Manifest, ManifestTool } from '../protocol/reply-body.js';
import type { ConnectionHandlers, OpenConnection, WorkerConnection } from './connection.js';
import { ManifestLearner } from './manifest-learner.js';
import { goodMs, reconnectDelayMs, refusedDelayMs } from './reconnect-plan.js';

/** A connection that is not open by then is given up. */
const openMs = 15_000;

/** Immutable. */
export interface Snapshot {
  readonly connection: WorkerConnection | undefined;
  /** Kept while there is no connection. Undefined: none is known. */
  readonly manifest: Manifest | undefined;
}

/** `refused`: the broker does not accept the key, or the address cannot be used. */
export type ConnectionState = 'connecting' | 'ready' | 'reconnecting' | 'refused' | 'closed';

interface KeeperStatus {
  state: ConnectionState;
  /** Why the worker is not ready, or was not lately. */
  lastError: HostError | undefined;
  /** The manifest was learned from a host since the start. */
  hasLearned: boolean;
  /** Connections so far. */
  opened: number;
}

export interface ConnectionKeeperParts {
  readonly open: OpenConnection;
  readonly session: string;
  readonly clock: Clock;
  readonly random: Random;
  /** From an earlier run. */
  readonly manifest: Manifest | undefined;
  readonly handlers: Pick<ConnectionHandlers, 'reply' | 'progress'>;
  readonly connected: (connection: WorkerConnection) => void;
  readonly learned: (manifest: Manifest, body: Buffer, isNew: boolean) => void;
  readonly swapped: (now: Snapshot) => void;
  readonly changed: (state: ConnectionState, error: HostError | undefined) => void;
}

interface Current {
  readonly connection: WorkerConnection;
  readonly learner: ManifestLearner;
  readonly over: (error: HostError) => void;
}

export class ConnectionKeeper {
  readonly #parts: ConnectionKeeperParts;
  readonly #stop = new Cancellation();
  readonly #handlers: ConnectionHandlers;
  #snapshot: Snapshot;
  #current: Current | undefined;
  readonly #status: KeeperStatus = { state: 'connecting', lastError: undefined, hasLearned: false, opened: 0 };
  readonly #done: Promise<void>;

  constructor(parts: ConnectionKeeperParts) {
    this.#parts = parts;
    this.#snapshot = Object.freeze({ connection: undefined, manifest: parts.manifest });
    this.#handlers = {
      ...parts.handlers,
      manifestChanged: (revision) => {
        if (revision !== this.#snapshot.manifest?.revision) this.stale();
      },
    };
    this.#done = this.#run();
  }

  get snapshot(): Snapshot {
    return this.#snapshot;
  }

  get status(): Readonly<KeeperStatus> {
    return this.#status;
  }

  /** The manifest is out of date. */
  stale(): void {
    this.#current?.learner.want();
  }

  /** Resolves when the manifest was asked for, or was lately. Never rejects. */
  look(): Promise<void> {
    return this.#current?.learner.look() ?? Promise.resolve();
  }

  async close(): Promise<void> {
    if (!this.#stop.aborted) {
      const { connection } = this.#current ?? {};
      this.#stop.abort();
      if (connection) this.#lost(connection, undefined);
      await connection?.close().catch(() => {});
    }
    await this.#done;
  }

  async #run(): Promise<void> {
    const { clock, random } = this.#parts;
    // The owner sets its fields first.
    await undefined;
    for (let failures = 0, refusals = 0; !this.#stop.aborted; ) {
      const openedBefore = this.#status.opened;
      const error = await this.#connect();
      if (this.#stop.aborted) break;
      if (this.#status.opened > openedBefore) refusals = 0;
      if (error && isRefusal(error)) {
        refusals++;
        this.#become('refused', error);
        await sleep(clock, refusedDelayMs(refusals, random), this.#stop);
      } else {
        refusals = 0;
        failures = error === undefined ? 0 : failures + 1;
        await sleep(clock, reconnectDelayMs(failures, random), this.#stop);
      }
    }
    this.#become('closed', undefined);
  }

  /** One connection until its end. Undefined: it was a good one. */
  async #connect(): Promise<HostError | undefined> {
    const { clock, connected } = this.#parts;
    let connection: WorkerConnection;
    try {
      connection = await this.#open();
    } catch (cause) {
      const error = asError(cause);
      if (!isRefusal(error)) this.#failed(error);
      return error;
    }
    this.#status.opened++;
    const openedAtMs = clock.nowMs();
    connected(connection);
    const error = await this.#use(connection);
    return !isRefusal(error) && clock.nowMs() - openedAtMs >= goodMs ? undefined : error;
  }

  async #open(): Promise<WorkerConnection> {
    const { open, clock, session } = this.#parts;
    const signal = new Cancellation();
    const giveUp = () => signal.abort();
    const cancel = clock.at(clock.nowMs() + openMs, giveUp);
    this.#stop.addEventListener('abort', giveUp);
    try {
      const connection = await open({ session, handlers: this.#handlers, signal });
      if (!signal.aborted) return connection;
      void connection.close().catch(() => {});
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      cancel();
      this.#stop.removeEventListener('abort', giveUp);
    }
    throw connectFailed(`the broker did not accept the connection within ${openMs / 1_000} s`);
  }

  /** Resolves at the end of the connection. A known manifest is used at once, and learned anew meanwhile. */
  #use(connection: WorkerConnection): Promise<HostError> {
    const { clock, random } = this.#parts;
    return new Promise((resolve) => {
      const learner = new ManifestLearner({
        ...{ clock, random },
        ask: () => connection.manifest(),
        learned: (manifest, body) => this.#learned(connection, manifest, body),
        failed: (error) => this.#failed(asError(error)),
      });
      const over = (error: HostError) => {
        learner.end();
        resolve(error);
      };
      this.#current = { connection, learner, over };
      connection.closed.then(
        (error) => this.#lost(connection, error),
        (cause) => this.#lost(connection, asError(cause)),
      );
      learner.want();
      const { manifest } = this.#snapshot;
      if (!manifest) return;
      this.#swap({ connection, manifest });
      this.#become('ready', undefined);
    });
  }

  #learned(connection: WorkerConnection, manifest: Manifest, body: Buffer): void {
    const before = this.#snapshot.manifest;
    const isSame = before?.revision === manifest.revision;
    const isNew = !isSame || !this.#status.hasLearned;
    this.#status.hasLearned = true;
    this.#swap({ connection, manifest: isSame ? before : manifest });
    this.#parts.learned(manifest, body, isNew);
    // Connected, but denied everything: the status says why there are no tools.
    const isOther = before?.denied?.message !== manifest.denied?.message;
    this.#become('ready', manifest.denied, isOther || this.#status.state !== 'ready');
  }

  #failed(error: HostError): void {
    if (this.#stop.aborted) return;
    if (this.#status.state === 'ready') this.#status.lastError = withoutStack(error);
    else this.#become(this.#snapshot.manifest ? 'reconnecting' : 'connecting', error, true);
  }

  /** Once for each connection. */
  #lost(connection: WorkerConnection, error: HostError | undefined): void {
    if (this.#current?.connection !== connection) return;
    const { over } = this.#current;
    this.#current = undefined;
    const reason = error ?? lostConnection();
    const { manifest } = this.#snapshot;
    this.#swap({ connection: undefined, manifest });
    if (this.#stop.aborted || isRefusal(reason)) this.#status.lastError = withoutStack(reason);
    else this.#become(manifest ? 'reconnecting' : 'connecting', reason);
    over(reason);
  }

  #swap(now: Snapshot): void {
    this.#snapshot = Object.freeze(now);
    this.#parts.swapped(now);
  }

  #become(state: ConnectionState, error: HostError | undefined, isNews = this.#status.state !== state): void {
    this.#status.state = state;
    this.#status.lastError = error && withoutStack(error);
    if (isNews) this.#parts.changed(state, this.#status.lastError);
  }
}

/** The next attempt with the same key or address will most likely fail too. */
const isRefusal = ({ code }: HostError): boolean =>
  code === 'unauthenticated' || code === 'denied' || code === 'invalid_spec';

const connectFailed = (message: string, cause?: unknown): HostError =>
  notExecuted('connect_failed', message, 'see whether the broker runs and can be reached', { cause });

const asError = (cause: unknown): HostError =>
  isHostError(cause) ? cause : connectFailed('the connection to the broker failed', cause);

const lostConnection = (): HostError =>
  new HostError('transport', 'the connection to the broker was lost', { hint: 'the worker connects again by itself' });

/** All tools that match; at most one if the server is named. */
export function findTools({ tools }: Manifest, server: string | undefined, tool: string): readonly ManifestTool[] {
  const found = tools.filter((each) => each.name === tool && (server === undefined || each.server === server));
  return server === undefined ? found : found.slice(0, 1);
}
