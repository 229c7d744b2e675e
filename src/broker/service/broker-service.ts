/**
 * Serves the workers of a host: accepts calls, answers questions about them, and keeps manifests current.
 * Not here: how messages travel (the transports), the steps of one call (call-runner.ts).
 *
 * Invariants: identity and role come from the session. The number of running calls is limited here per worker only. None of the handlers
 * throws.
 */

import type { ServiceStatus } from '../../host/broker-status.js';
import { setBounded } from '../../kernel/bounded-map.js';
import type { Clock } from '../../kernel/clock.js';
import { eachOf } from '../../kernel/each-of.js';
import { type HostError, isHostError } from '../../kernel/errors.js';
import { KeyedMutex } from '../../kernel/keyed-mutex.js';
import { newId } from '../../kernel/random.js';
import { compositeKey } from '../../policy/composite-key.js';
import type { BrokerEvent } from '../broker-events.js';
import { type CallLog, hasOutcome } from '../calls/call-log.js';
import { brokerLimits } from '../protocol/limits.js';
import { type AskedCalls, type CallRequest, invalid, type WorkerMessage } from '../protocol/messages.js';
import { errorBody } from '../protocol/reply-body.js';
import { cancelled, hostFailed, revoked } from './call-errors.js';
import { CallRunner } from './call-runner.js';
import { Manifests, type RoleManifest } from './manifests.js';
import type { Caller, CallTask } from './running-call.js';
import { RunningSlots } from './running-slots.js';
import type { ServedHost, ServiceHandlers, WorkerSession, WorkerTransport } from './transport.js';
import { idOf, workerCall } from './worker-call.js';

export interface BrokerServiceOptions {
  readonly host: ServedHost;
  readonly log: CallLog;
  readonly clock: Clock;
  /** Calls of one worker that run at once. */
  readonly runningPerWorker: number;
  /** Whether a worker without a role may use what the host allows. */
  readonly isRolelessAllowed?: () => boolean;
  /** It must not throw. */
  readonly onEvent?: (event: BrokerEvent) => void;
}

/** How long a cancel is remembered: it may overtake its call, which comes over another connection. */
const cancelMs = 5_000;
const cancelsMax = 16_384;
/** Unlisted roles that the status shows. */
const unlistedMax = 100;
/** Time to record and answer calls that a stop has cancelled. A log that hangs delays the stop no longer than this. */
const recordMs = 3_000;
/** Sessions that are remembered, so that events can tell a reconnect from a first connection. */
const seenMax = 4_096;
/** Rows that are read at once for one `ask` message: each reply may have 4 MiB. */
const asksAtOnce = 8;
/** Waiting `ask` messages of one worker. Further ones are answered as if all their calls were running, so the worker asks again. */
const asksMax = 64;

export class BrokerService implements ServiceHandlers {
  readonly #options: BrokerServiceOptions;
  readonly #runner: CallRunner;
  readonly #manifests: Manifests;
  /** Calls that were cancelled before they came, with the time of the cancel. */
  readonly #cancels = new Map<string, number>();
  /** Answers one question of each worker at a time, because the replies that it reads are in memory. */
  readonly #asks = new KeyedMutex(asksMax);
  readonly #seen = new Map<string, true>();
  readonly #unlisted = new Map<string | undefined, true>();
  readonly #counts = { calls: 0, repeated: 0, expired: 0, denied: 0, refused: 0, uncertain: 0 };
  #transport: WorkerTransport | undefined;
  #isStopping = false;

  constructor(options: BrokerServiceOptions) {
    const { host, log, clock, runningPerWorker, isRolelessAllowed = () => false } = options;
    this.#options = options;
    const onProblem = (error: unknown) => this.#report({ kind: 'problem', error });
    this.#manifests = new Manifests({
      ...{ host, clock, isRolelessAllowed, onProblem },
      onChanged: (role, manifest) => this.#manifestChanged(role, manifest),
    });
    this.#runner = new CallRunner({
      ...{ log, clock, onProblem },
      slots: new RunningSlots(runningPerWorker, brokerLimits.callsPerWorker),
      lookups: new RunningSlots(brokerLimits.callsPerWorker, 0),
      sendingsMax: brokerLimits.sendingsPerCall,
      onRepeated: () => void this.#counts.repeated++,
      onUncertain: ({ id: { worker, key } }) => this.#report({ kind: 'uncertain', worker, key }),
    });
  }

  /** The transport that notifies workers of changed manifests. */
  attach(transport: WorkerTransport): void {
    this.#transport = transport;
  }

  status(): ServiceStatus {
    return {
      ...this.#runner.figures(),
      ...this.#counts,
      unlistedRoles: [...this.#unlisted.keys()].flatMap((role) => role ?? []),
      tooLarge: this.#manifests.tooLarge(),
    };
  }

  /** These workers have another role. They get a revision that no manifest has, so that they ask for their manifest. */
  rolesChanged(workers: ReadonlySet<string>): void {
    this.#transport?.notify(({ name }) => workers.has(name), { op: 'manifest_changed', revision: newId() });
  }

  /** Removes the rows of all epochs but `keepEpochs`. Calls that run are cancelled, and their outcome is recorded without a reply. */
  async workerRevoked(name: string, keepEpochs: readonly string[] = []): Promise<void> {
    const purged = this.#options.log.purge(name, keepEpochs);
    this.#runner.cancelAll(({ worker, epoch }) => worker === name && !keepEpochs.includes(epoch));
    await purged;
  }

  /** Begins no further call. Running calls may finish for `graceMs`; then they are cancelled, and their outcomes are recorded. */
  async stop(graceMs: number): Promise<void> {
    this.#isStopping = true;
    await this.#runner.stop(graceMs, recordMs);
  }

  close(): void {
    this.#manifests.close();
    this.#runner.cancelAll(() => true);
  }

  heard(session: WorkerSession, message: WorkerMessage): void {
    switch (message.op) {
      case 'call':
        return this.#call(session, message);
      case 'cancel':
        return void this.cancel(session, message.key);
      case 'ack':
        for (const key of message.keys) this.#options.log.acknowledge(idOf(session, key));
        return;
      case 'ask':
        return void this.ask(session, message.keys).then((asked) =>
          session.send({ op: 'asked', id: message.id, ...asked }),
        );
      case 'manifest':
        return void this.manifest(session).then((body) => session.send({ op: 'manifest', id: message.id, body }));
      default:
        throw invalid('op', `cannot be ${message.op} here`);
    }
  }

  #call(session: WorkerSession, request: CallRequest): void {
    const { key } = request;
    this.#counts.calls++;
    try {
      if (!session.identity()) return this.#refuse(session, key, revoked());
      const { host, clock } = this.#options;
      const ports = { host, manifests: this.#manifests, onEvent: this.#report };
      const task = workerCall(session, request, clock.nowMs() + request.deadlineMs, ports);
      const wasCancelled = this.#takeCancel(cancelKey(session, key));
      // A call that was sent before may have a row, which only the runner can decide about.
      if (wasCancelled && !request.sentBefore && !request.isCallersKey) return this.#refuse(session, key, cancelled());
      this.#runner.send(task, session.id, this.#callerOf(session, request.manifestRevision, task));
      if (wasCancelled) this.#runner.cancel(task.id, session.id);
    } catch (error) {
      if (!isHostError(error)) this.#report({ kind: 'problem', error });
      const known = isHostError(error) ? error : hostFailed(error);
      this.#refuse(session, key, known.with({ execution: 'not_executed' }));
    }
  }

  /** Returns whether this host has the call. */
  cancel(session: WorkerSession, key: string): boolean {
    const isHere = this.#runner.cancel(idOf(session, key), session.id) !== undefined;
    if (!isHere) setBounded(this.#cancels, cancelKey(session, key), this.#options.clock.nowMs(), cancelsMax);
    return isHere;
  }

  /** Sends a `reply` for each call that has an outcome, and returns the others. Never rejects. */
  ask(session: WorkerSession, keys: readonly string[]): Promise<AskedCalls> {
    const worker = compositeKey(session.name, session.epoch);
    const answer = this.#asks.runExclusive(worker, () => this.#ask(session, [...new Set(keys)]));
    // If there are too many questions, or one failed, the worker asks again.
    return answer.catch(() => ({ running: keys, resend: [] }));
  }

  async #ask(session: WorkerSession, keys: readonly string[]): Promise<AskedCalls> {
    const [running, resend]: [string[], string[]] = [[], []];
    let isReading = session.identity() !== undefined;
    await eachOf(keys, asksAtOnce, async (key) => {
      // A worker that does not read its replies asks for the rest later.
      const answer = isReading ? await this.#answer(session, key) : 'unread';
      if (answer === 'resend') resend.push(key);
      else if (answer !== 'sent') running.push(key);
      isReading &&= answer !== 'unread';
    });
    return { running, resend };
  }

  /** Body of the manifest of the worker's role. Never rejects. */
  async manifest(session: WorkerSession): Promise<Buffer> {
    try {
      await this.#manifests.whenListed();
      const identity = session.identity();
      if (!identity) return errorBody(revoked());
      const manifest = this.#manifests.of(identity.role);
      this.#noteDenied(session, identity.role, manifest);
      return manifest.body;
    } catch (error) {
      this.#report({ kind: 'problem', error });
      return errorBody(isHostError(error) ? error : hostFailed(error));
    }
  }

  /** A worker that connects may have an older manifest. */
  connected(session: WorkerSession): void {
    const identity = session.identity();
    const { id, name: worker, epoch } = session;
    const key = compositeKey(worker, epoch, id);
    const isAgain = this.#seen.has(key);
    setBounded(this.#seen, key, true, seenMax);
    this.#report({ kind: 'connected', worker, session: id, isAgain });
    if (!identity || this.#isStopping) return;
    try {
      const manifest = this.#manifests.of(identity.role);
      this.#noteDenied(session, identity.role, manifest);
      if (this.#manifests.notifiesLater(identity.role)) return;
      session.send({ op: 'manifest_changed', revision: manifest.revision });
    } catch (error) {
      this.#report({ kind: 'problem', error });
    }
  }

  left({ name: worker, id: session }: WorkerSession, reason: string): void {
    this.#report({ kind: 'disconnected', worker, session, reason });
  }

  /** Sends the outcome of a call. Otherwise returns why not: the worker does not read, the call runs, or the call must be sent again. */
  async #answer(session: WorkerSession, key: string): Promise<'sent' | 'unread' | 'running' | 'resend'> {
    const { log } = this.#options;
    const id = idOf(session, key);
    if (this.#runner.has(id)) return 'running';
    try {
      const row = await log.find(id);
      // The call may have arrived while the log was read.
      if (this.#runner.has(id)) return 'running';
      if (row?.reply && hasOutcome(row))
        return session.send({ op: 'reply', key, body: row.reply, digest: row.digest }) ? 'sent' : 'unread';
      const isElsewhere = row && !hasOutcome(row) && row.owner !== log.owner && !(await log.isGone(row.owner));
      return isElsewhere ? 'running' : 'resend';
    } catch {
      // The worker asks again.
      return 'running';
    }
  }

  /** A session may join a call that another has sent. It must not keep the arguments of its own sending meanwhile. */
  #callerOf(session: WorkerSession, revision: string | undefined, { id, isCallersKey, digest }: CallTask): Caller {
    const { key } = id;
    return {
      receipt: (owner) => {
        session.send({ op: 'receipt', key, owner, storeId: this.#options.log.storeId });
        this.#sendRevision(session, revision);
      },
      refuse: (error) => this.#refuse(session, key, error),
      // A worker that misses the reply asks for it.
      reply: (body) => void session.send({ op: 'reply', key, body, digest: isCallersKey ? digest : undefined }),
    };
  }

  #sendRevision(session: WorkerSession, known: string | undefined): void {
    const identity = session.identity();
    if (known === undefined || !identity) return;
    const { revision } = this.#manifests.of(identity.role);
    if (revision !== known) session.send({ op: 'manifest_changed', revision });
  }

  #refuse(session: WorkerSession, key: string, error: HostError): void {
    this.#counts.refused++;
    if (error.code === 'expired') this.#counts.expired++;
    session.send({ op: 'refused', key, error });
  }

  /** True once for each cancel that came shortly before its call. */
  #takeCancel(key: string): boolean {
    const atMs = this.#cancels.get(key);
    if (atMs === undefined) return false;
    this.#cancels.delete(key);
    return this.#options.clock.nowMs() - atMs <= cancelMs;
  }

  #noteDenied({ name }: WorkerSession, role: string | undefined, { denied }: RoleManifest): void {
    if (!denied) return void this.#unlisted.delete(role);
    if (this.#unlisted.has(role)) return;
    setBounded(this.#unlisted, role, true, unlistedMax);
    this.#report({ kind: 'unlisted_role', worker: name, role, error: denied });
  }

  #manifestChanged(role: string | undefined, { denied, revision }: RoleManifest): void {
    if (!denied) this.#unlisted.delete(role);
    this.#transport?.notify((identity) => identity.role === role, { op: 'manifest_changed', revision });
  }

  readonly #report = (event: BrokerEvent): void => {
    if (event.kind === 'denied') this.#counts.denied++;
    if (event.kind === 'uncertain') this.#counts.uncertain++;
    this.#options.onEvent?.(event);
  };
}

/** The session is part of the key: a cancel must not end a call of another session with the same key. */
const cancelKey = ({ name, epoch, id }: WorkerSession, key: string): string => compositeKey(name, epoch, id, key);
