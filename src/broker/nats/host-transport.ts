/**
 * Serves workers over NATS: requests of workers to the service, and messages of the service to workers.
 * Not here: rows of calls (kv-call-log.ts), accounts (server-config.ts).
 *
 * Invariants: name and epoch of a worker are in the subject, which its account binds; its role comes from the configuration of this host.
 * Calls wait while the id of the store is checked. Calls that this process may have read long after they were sent are dropped.
 */
import { type Cancel, type Clock, sleep } from '../../kernel/clock.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import { joinedParts } from '../../wire/json-edit.js';
import type { BrokerEvent } from '../broker-events.js';
import type { Identities } from '../identities.js';
import { idPattern } from '../protocol/limits.js';
import {
  type HostMessage,
  invalid,
  readWorkerMessage,
  type WorkerMessage,
  writeMessage,
} from '../protocol/messages.js';
import type { ServiceHandlers, WorkerIdentity, WorkerTransport } from '../service/transport.js';
import { anyWorker, queueGroup, senderIn, toSession, toWorker } from './names.js';
import { bufferOf, type NatsConnection, type NatsMessage } from './nats-client.js';
import type { TurnBatch } from './row-writes.js';
import { type NatsSession, Sessions } from './sessions.js';

/** What calls need of the store. */
interface StoreGate {
  readonly id: string;
  readonly seenToken: string;
  readonly checking: Promise<void> | undefined;
  sawToken(token: string): void;
}

export interface HostTransportOptions {
  /** Reads calls only: a flood of them does not delay replies, acknowledgements and cancellations. */
  readonly intake: NatsConnection;
  readonly connection: NatsConnection;
  readonly handlers: ServiceHandlers;
  readonly identities: Identities;
  readonly store: StoreGate;
  readonly owner: string;
  readonly clock: Clock;
  readonly isGone: (owner: string) => Promise<boolean>;
  readonly onProblem: (error: unknown) => void;
  readonly onEvent: (event: BrokerEvent) => void;
  readonly batch: TurnBatch;
}

const tickMs = 1_000;
/** A process that stood still for this time (suspended, swapped out) may have old requests in its socket. */
const pauseMs = 20_000;
const stopMs = 3_000;
/** A worker sends a call again that got no answer in this time. The earlier copy must not be served later: its row may be removed by then. */
const heldMs = 5_000;
/** Calls that wait for the check of the store. Others are dropped, and sent again. */
const heldBytesMax = 16 * 1024 * 1024;

export class HostTransport implements WorkerTransport {
  readonly #options: HostTransportOptions;
  readonly #sessions: Sessions;
  readonly #subscriptions: { unsubscribe(): void }[] = [];
  readonly #stopListening: () => void;
  #unanswered = 0;
  #answered: (() => void) | undefined;
  #isStopped = false;
  #stopTick: Cancel | undefined;
  #tickedAt: readonly [number, number] = [0, 0];
  /** Until the intake has a new connection. */
  #isStale = false;
  #pauses = 0;
  #heldBytes = 0;

  constructor(options: HostTransportOptions) {
    this.#options = options;
    const { intake, connection, identities, handlers, clock, owner } = options;
    this.#sessions = new Sessions({
      ...{
        clock,
        identities,
        onJoined: (session) => handlers.joined(session),
        onConnected: ({ name, id }, isAgain) =>
          options.onEvent({ kind: 'connected', worker: name, session: id, isAgain }),
        onLeft: ({ name, id }, reason) => options.onEvent({ kind: 'disconnected', worker: name, session: id, reason }),
      },
      publish: ({ name, epoch, id }, message) => this.#publish(toSession(name, epoch, id), message),
    });
    this.#stopListening = identities.onChange(() => this.#sessions.dropRevoked());
    const on = (from: NatsConnection, operation: WorkerMessage['op'], run: Run, settings: { queue?: string } = {}) => {
      const subject = anyWorker(operation, operation === 'ask' ? owner : undefined);
      const callback = (error: Error | null, message: NatsMessage) => {
        if (error) options.onProblem(error);
        else this.#heard(message, run);
      };
      this.#subscriptions.push(from.subscribe(subject, { callback, ...settings }));
    };
    const queue = { queue: queueGroup };
    // All hosts hear it, in order with calls: each compares the sequence that the worker has seen.
    on(intake, 'here', (message, session) => this.#hello(message, session));
    on(intake, 'call', (message, session) => this.#call(message, session), queue);
    on(intake, 'bye', (message, session) => this.#bye(message, session));
    on(connection, 'cancel', (message, session) => this.#cancel(message, session));
    on(connection, 'taken', (message, session) => session && handlers.taken(session, parsed(message, 'taken').keys));
    on(connection, 'ask', (message, session) => this.#ask(message, session));
    on(connection, 'gone', (message, session) => this.#gone(message, session), queue);
    on(connection, 'manifest', (message, session) => this.#manifest(message, session), queue);
    this.#tick();
    void this.#watchIntake();
  }

  notify(isWanted: (identity: WorkerIdentity) => boolean, message: HostMessage): void {
    for (const identity of this.#options.identities.workers())
      if (isWanted(identity)) this.#publish(toWorker(identity.name, identity.epoch), message);
  }

  get connectedWorkers(): number {
    return this.#sessions.count;
  }

  async stop(): Promise<void> {
    if (!this.#isStopped) for (const subscription of this.#subscriptions.splice(0, 3)) subscription.unsubscribe();
    this.#isStopped = true;
    const { clock, intake } = this.#options;
    const late = sleep(clock, stopMs);
    // What the server had sent before it read that this host hears no more calls is read by then.
    await Promise.race([intake.flush().catch(() => {}), late]);
    const idle = new Promise<void>((resolve) => {
      this.#answered = resolve;
      if (this.#unanswered === 0) resolve();
    });
    await Promise.race([idle, late]);
  }

  async close(): Promise<void> {
    this.#isStopped = true;
    this.#stopTick?.();
    this.#stopListening();
    for (const subscription of this.#subscriptions.splice(0)) subscription.unsubscribe();
    this.#sessions.close();
  }

  /** Nothing that a message contains ends the subscription. */
  #heard(message: NatsMessage, run: Run): void {
    try {
      const { worker, epoch, session: id } = senderIn(message.subject);
      const session = idPattern.test(id) ? this.#sessions.of(worker, epoch, id) : undefined;
      run(message, session);
    } catch (error) {
      if (message.reply) this.#respond(message, { op: 'refused', key: 'unknown', error: asHostError(error) });
      else this.#options.onProblem(error);
    }
  }

  #hello(message: NatsMessage, session: NatsSession | undefined): void {
    const { store } = this.#options;
    const { connection, seen = '' } = parsed(message, 'here');
    store.sawToken(seen);
    if (session) this.#sessions.connected(session, connection);
    const answer = () => {
      const { name: worker, role } = session?.identity() ?? {};
      if (worker === undefined) this.#respond(message, { op: 'refused', key: 'hello', error: unknownWorker() });
      else this.#respond(message, { op: 'welcome', worker, role, storeId: store.id, seen: store.seenToken });
    };
    if (store.checking !== undefined) void store.checking.then(answer);
    else answer();
  }

  #bye(message: NatsMessage, session: NatsSession | undefined): void {
    const { connection } = parsed(message, 'bye');
    if (session?.connection === connection) this.#sessions.drop(session, 'closed');
  }

  #call(message: NatsMessage, session: NatsSession | undefined): void {
    const { store, handlers } = this.#options;
    // The worker sends it again.
    if (this.#isStale || this.#wasPaused()) return;
    const request = parsed(message, 'call');
    const { key } = request;
    if (!session) return this.#respond(message, { op: 'refused', key, error: unknownWorker() });
    this.#unanswered++;
    const answer = (given: HostMessage | undefined) => {
      if (given) this.#respond(message, given);
      if (--this.#unanswered === 0) this.#answered?.();
    };
    const serve = () =>
      handlers.call({
        ...{ session, request },
        receipt: (owner) => answer({ op: 'receipt', key, owner, storeId: store.id, seen: store.seenToken }),
        refuse: (error) => answer({ op: 'refused', key, error }),
      });
    if (store.checking === undefined) serve();
    else this.#hold(message.data.length, store.checking, (isInTime) => (isInTime ? serve() : answer(undefined)));
  }

  /** Calls `done` when the id of the store was checked, and says whether that was soon enough for a call. */
  #hold(bytes: number, checking: Promise<void>, done: (isInTime: boolean) => void): void {
    if (this.#heldBytes + bytes > heldBytesMax) return done(false);
    const { clock } = this.#options;
    const [heldAtMs, pauses] = [clock.nowMs(), this.#pauses];
    this.#heldBytes += bytes;
    void checking.then(() => {
      this.#heldBytes -= bytes;
      const isStale = this.#isStale || this.#wasPaused() || this.#pauses !== pauses;
      done(!isStale && clock.nowMs() - heldAtMs < heldMs);
    });
  }

  /** Only the host that has the call answers; the worker asks again until one did. */
  #cancel(message: NatsMessage, session: NatsSession | undefined): void {
    const { key } = parsed(message, 'cancel');
    if (session && this.#options.handlers.cancel(session, key)) message.respond();
  }

  #ask(message: NatsMessage, session: NatsSession | undefined): void {
    const { id, keys } = parsed(message, 'ask');
    if (!session) return;
    void this.#options.handlers
      .ask(session, keys)
      .then((asked) => this.#respond(message, { op: 'asked', id, ...asked }), this.#options.onProblem);
  }

  /** Whether a host is gone. Workers cannot see that: nats-server 2.9 does not tell another account that a subject has no listener. */
  #gone(message: NatsMessage, session: NatsSession | undefined): void {
    const { owner } = parsed(message, 'gone');
    if (!session) return;
    void this.#options
      .isGone(owner)
      .then((isGone) => this.#respond(message, { op: 'owner', isGone }), this.#options.onProblem);
  }

  #manifest(message: NatsMessage, session: NatsSession | undefined): void {
    const { id } = parsed(message, 'manifest');
    if (!session) return this.#respond(message, { op: 'refused', key: id, error: unknownWorker() });
    void this.#options.handlers
      .manifest(session)
      .then((body) => this.#respond(message, { op: 'manifest', id, body }), this.#options.onProblem);
  }

  #respond({ reply }: NatsMessage, answer: HostMessage): void {
    if (reply) this.#publish(reply, answer);
  }

  /** Over the connection of the writes of the log: one write to the socket for all of them. */
  #publish(subject: string, message: HostMessage): boolean {
    const { batch, connection, onProblem } = this.#options;
    if (connection.isClosed()) return false;
    const bytes = joinedParts(writeMessage(message));
    batch.add(() => {
      try {
        connection.publish(subject, bytes);
      } catch (error) {
        if (!connection.isClosed()) onProblem(error);
      }
    });
    return true;
  }

  #tick(): void {
    const { clock } = this.#options;
    this.#tickedAt = [clock.nowMs(), clock.date().getTime()];
    this.#stopTick = clock.at(clock.nowMs() + tickMs, () => {
      this.#wasPaused();
      this.#tick();
    });
  }

  /**
   * Rows are removed a minute after the deadline of their calls. A request that was in the socket of a process which stood still, or of a
   * machine that slept (which only wall time shows), may be older than that. A new connection has none of them.
   */
  #wasPaused(): boolean {
    const { intake, clock, onProblem } = this.#options;
    const [tickedMs, tickedWallMs] = this.#tickedAt;
    if (Math.max(clock.nowMs() - tickedMs, clock.date().getTime() - tickedWallMs) < pauseMs) return false;
    if (!this.#isStale) void intake.reconnect().catch(onProblem);
    this.#tickedAt = [clock.nowMs(), clock.date().getTime()];
    this.#isStale = true;
    this.#pauses++;
    return true;
  }

  async #watchIntake(): Promise<void> {
    for await (const { type } of this.#options.intake.status()) if (type === 'reconnect') this.#isStale = false;
  }
}

type Run = (message: NatsMessage, session: NatsSession | undefined) => void;

function parsed<T extends WorkerMessage['op']>(message: NatsMessage, op: T): Extract<WorkerMessage, { op: T }> {
  const read = readWorkerMessage(bufferOf(message.data));
  if (read.op === op) return read as Extract<WorkerMessage, { op: T }>;
  throw invalid('op', `must be ${op}`);
}

const asHostError = (error: unknown): HostError =>
  isHostError(error) ? error : new HostError('invalid_request', 'the message cannot be read', { cause: error });

const unknownWorker = (): HostError =>
  new HostError('unauthenticated', 'this host has no valid key for the worker', {
    ...{ execution: 'not_executed', reason: 'unknown_key' },
    hint: 'check keys in the configuration of every host: the worker, its nkey and expires',
  });
