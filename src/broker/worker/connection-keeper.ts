/**
 * Keeps a worker connected: opens a connection, learns the manifest over it, and opens the next one when it is lost, for ever.
 * Not here: calls (call-table.ts), delays (reconnect-plan.ts).
 *
 * Invariants: calls use a connection only while a manifest is known. A connection is over when it says so, or when it was not opened in
 * time. A refused key is tried again, after longer delays. `close` leaves no connection open, whatever happens at the same moment.
 */
import { Cancellation } from '../../kernel/cancel-signal.js';
import { type Clock, sleep } from '../../kernel/clock.js';
import { type HostError, isHostError, notExecuted, withoutStack } from '../../kernel/errors.js';
import type { Random } from '../../kernel/random.js';
import type { HostMessage } from '../protocol/messages.js';
import type { Manifest } from '../protocol/reply-body.js';
import type { OpenConnection, WorkerConnection } from './connection.js';
import { ManifestLearner } from './manifest-learner.js';
import { goodMs, reconnectDelayMs, refusedDelayMs } from './reconnect-plan.js';

/** A connection that is not open after this time is given up. */
const openMs = 15_000;

/** `refused`: the broker does not accept the key, or the address cannot be used. */
export type ConnectionState = 'connecting' | 'ready' | 'reconnecting' | 'refused' | 'closed';

interface KeeperStatus {
  state: ConnectionState;
  /** Why the worker is not ready; in state `ready`, why the manifest could not be read, or why the host denies all tools. */
  lastError: HostError | undefined;
  /** Kept while there is no connection. Undefined: none is known. */
  manifest: Manifest | undefined;
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
  /** The manifest of an earlier run. */
  readonly manifest: Manifest | undefined;
  /** Every message but those about the manifest. */
  readonly heard: (message: HostMessage) => void;
  readonly connected: (connection: WorkerConnection) => void;
  /** The connection for calls from now on; undefined: there is none. */
  readonly use: (connection: WorkerConnection | undefined) => void;
  readonly learned: (manifest: Manifest, body: Buffer, isNew: boolean) => void;
  readonly changed: (state: ConnectionState, error: HostError | undefined) => void;
}

export class ConnectionKeeper {
  readonly #parts: ConnectionKeeperParts;
  readonly #stop = new Cancellation();
  readonly #status: KeeperStatus;
  /** Set while there is a connection. */
  #learner: ManifestLearner | undefined;
  readonly #done: Promise<void>;

  constructor(parts: ConnectionKeeperParts) {
    this.#parts = parts;
    const { manifest } = parts;
    this.#status = { state: 'connecting', lastError: undefined, manifest, hasLearned: false, opened: 0 };
    this.#done = this.#run();
  }

  get status(): Readonly<KeeperStatus> {
    return this.#status;
  }

  /** The manifest is out of date. */
  stale(): void {
    this.#learner?.want();
  }

  /** Resolves when a question for the manifest was answered, at once if that was less than 5 s ago. Never rejects. */
  look(): Promise<void> {
    return this.#learner?.look() ?? Promise.resolve();
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#done;
  }

  async #run(): Promise<void> {
    const { clock, random } = this.#parts;
    // Waits one turn, so that the object that constructs this keeper has stored it before the first callback.
    await undefined;
    for (let failures = 0, refusals = 0; !this.#stop.aborted; ) {
      let goodFromMs = Number.POSITIVE_INFINITY;
      let error: HostError;
      try {
        const connection = await this.#open();
        refusals = 0;
        goodFromMs = clock.nowMs() + goodMs;
        error = await this.#use(connection);
      } catch (cause) {
        error = asError(cause);
      }
      if (this.#stop.aborted) break;
      if (isRefusal(error)) {
        refusals++;
        this.#become('refused', error);
        await sleep(clock, refusedDelayMs(refusals, random), this.#stop);
      } else {
        refusals = 0;
        failures = clock.nowMs() < goodFromMs ? failures + 1 : 0;
        this.#become(this.#status.manifest ? 'reconnecting' : 'connecting', error);
        await sleep(clock, reconnectDelayMs(failures, random), this.#stop);
      }
    }
    this.#become('closed', undefined);
  }

  async #open(): Promise<WorkerConnection> {
    const { open, clock, session } = this.#parts;
    const signal = new Cancellation();
    const giveUp = () => signal.abort();
    const cancel = clock.at(clock.nowMs() + openMs, giveUp);
    this.#stop.addEventListener('abort', giveUp);
    try {
      return await open({ session, heard: (message) => this.#heard(message), signal });
    } catch (error) {
      throw signal.aborted
        ? connectFailed(`the broker did not accept the connection within ${openMs / 1_000} s`)
        : error;
    } finally {
      cancel();
      this.#stop.removeEventListener('abort', giveUp);
    }
  }

  #heard(message: HostMessage): void {
    if (message.op === 'manifest') return this.#learner?.heard(message.id, message.body);
    if (message.op === 'serving')
      this.#learner?.fail(connectFailed('a host began to serve after this worker had asked for its tools'));
    if (message.op !== 'manifest_changed') return this.#parts.heard(message);
    if (message.revision !== this.#status.manifest?.revision) this.stale();
  }

  /** Returns why the connection ended. A known manifest is used at once, and learned anew meanwhile. */
  async #use(connection: WorkerConnection): Promise<HostError> {
    const { clock, random, connected, use } = this.#parts;
    const close = () => void connection.close();
    this.#stop.addEventListener('abort', close);
    if (this.#stop.aborted) close();
    this.#status.opened++;
    connected(connection);
    const learner = new ManifestLearner({
      ...{ clock, random, connection },
      learned: (manifest, body) => this.#learned(connection, manifest, body),
      failed: (error) => this.#notLearned(asError(error)),
    });
    this.#learner = learner;
    learner.want();
    if (this.#status.manifest) {
      use(connection);
      this.#become('ready', undefined);
    }
    const error = asError(await connection.closed);
    this.#stop.removeEventListener('abort', close);
    this.#learner = undefined;
    learner.end();
    use(undefined);
    return error;
  }

  #learned(connection: WorkerConnection, manifest: Manifest, body: Buffer): void {
    const { manifest: before, hasLearned } = this.#status;
    Object.assign(this.#status, { manifest, hasLearned: true });
    this.#parts.use(connection);
    this.#parts.learned(manifest, body, !hasLearned || before?.revision !== manifest.revision);
    // Connected, but denied everything: the status says why there are no tools.
    this.#become('ready', manifest.denied);
  }

  #notLearned(error: HostError): void {
    if (!this.#stop.aborted) this.#become(this.#status.manifest ? 'ready' : 'connecting', error);
  }

  #become(state: ConnectionState, error: HostError | undefined): void {
    const { state: before, lastError } = this.#status;
    this.#status.state = state;
    this.#status.lastError = error && withoutStack(error);
    if (state !== before || error?.message !== lastError?.message) this.#parts.changed(state, this.#status.lastError);
  }
}

/** The next attempt with the same key or address will most likely fail too. */
const isRefusal = ({ code }: HostError): boolean =>
  code === 'unauthenticated' || code === 'denied' || code === 'invalid_spec';

const connectFailed = (message: string, cause?: unknown): HostError =>
  notExecuted('connect_failed', message, 'see whether the broker runs and can be reached', { cause });

const asError = (cause: unknown): HostError =>
  isHostError(cause) ? cause : connectFailed('the connection to the broker failed', cause);
