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
import type { Identities } from '../identities.js';
import { idPattern } from '../protocol/limits.js';
import {
  type HostMessage,
  invalid,
  readWorkerMessage,
  type WorkerMessage,
  writeMessage,
} from '../protocol/messages.js';
import { serveMessage } from '../service/serve-message.js';
import type { ServiceHandlers, WorkerIdentity, WorkerTransport } from '../service/transport.js';
import { anyWorkerSubject, queueGroup, senderOf, sessionSubject, workerSubject } from './names.js';
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
  readonly clock: Clock;
  readonly onProblem: (error: unknown) => void;
  readonly batch: TurnBatch;
}

const tickMs = 1_000;
/** A process that stood still for this time (suspended, swapped out) may have old requests in its socket. */
const pauseMs = 20_000;
const stopMs = 3_000;
/** Another host admits a worker within this time. A worker waits a second for an answer. */
const refusalMs = 300;
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
    const { intake, connection, identities, handlers, clock } = options;
    this.#sessions = new Sessions({
      ...{
        clock,
        identities,
        onConnected: (session) => handlers.connected(session),
        onLeft: (session, reason) => handlers.left(session, reason),
      },
      publish: ({ name, epoch, id }, message) => this.#publish(sessionSubject(name, epoch, id), message),
    });
    this.#stopListening = identities.onChange(() => this.#sessions.dropRevoked());
    const on = (from: NatsConnection, operation: WorkerMessage['op'], settings: { queue?: string } = {}) => {
      const callback = (error: Error | null, message: NatsMessage) => {
        if (error) options.onProblem(error);
        else this.#heard(message, operation);
      };
      this.#subscriptions.push(from.subscribe(anyWorkerSubject(operation), { callback, ...settings }));
    };
    const queue = { queue: queueGroup };
    // All hosts hear it, in order with calls: each compares the sequence that the worker has seen.
    on(intake, 'here');
    on(intake, 'call', queue);
    on(intake, 'bye');
    on(connection, 'cancel');
    on(connection, 'ack');
    on(connection, 'ask', queue);
    on(connection, 'manifest', queue);
    this.#tick();
    void this.#watchIntake();
  }

  notify(isWanted: (identity: WorkerIdentity) => boolean, message: HostMessage): void {
    for (const identity of this.#options.identities.workers())
      if (isWanted(identity)) this.#publish(workerSubject(identity.name, identity.epoch), message);
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

  /** Nothing that a message contains ends the subscription. `operation`: the one of its subject. */
  #heard(message: NatsMessage, operation: WorkerMessage['op']): void {
    const { worker, epoch, session: id } = senderOf(message.subject);
    if (!idPattern.test(id)) return;
    const answer = (given: HostMessage) =>
      void this.#publish(operation === 'here' ? message.reply : sessionSubject(worker, epoch, id), given);
    try {
      const said = readWorkerMessage(bufferOf(message.data));
      if (said.op !== operation) throw invalid('op', `must be ${operation}`);
      const session = this.#sessions.of(worker, epoch, id);
      if (!session) this.#refuse(said, answer);
      else if (said.op === 'here') this.#hello(said, session, answer);
      else if (said.op === 'bye') this.#bye(said, session);
      else if (said.op === 'call') this.#call(said, message.data.length, session, answer);
      else this.#serve(said, session, answer);
    } catch (error) {
      answer({ op: 'refused', key: 'unknown', error: asHostError(error) });
    }
  }

  /** All hosts answer a hello, and the first answer counts: one that does not have a new key yet lets the others answer first. */
  #refuse(said: WorkerMessage, answer: (given: HostMessage) => void): void {
    const { clock } = this.#options;
    const refuse = () => answer({ op: 'refused', key: keyOf(said), error: unknownWorker() });
    if (said.op === 'here') clock.at(clock.nowMs() + refusalMs, refuse);
    else refuse();
  }

  #serve(message: WorkerMessage, session: NatsSession, answer: (given: HostMessage) => void): void {
    const { handlers, store } = this.#options;
    serveMessage(message, session, handlers, () => ({ storeId: store.id, seen: store.seenToken }), answer);
  }

  #hello({ connection, seen = '' }: Said<'here'>, session: NatsSession, answer: (given: HostMessage) => void): void {
    const { store } = this.#options;
    store.sawToken(seen);
    this.#sessions.connected(session, connection);
    const welcome = () => {
      const { name: worker, role } = session.identity() ?? {};
      if (worker === undefined) answer({ op: 'refused', key: 'hello', error: unknownWorker() });
      else answer({ op: 'welcome', worker, role, storeId: store.id, seen: store.seenToken });
    };
    if (store.checking !== undefined) void store.checking.then(welcome);
    else welcome();
  }

  #bye({ connection }: Said<'bye'>, session: NatsSession): void {
    if (session.connection === connection) this.#sessions.drop(session, 'closed');
  }

  #call(call: Said<'call'>, bytes: number, session: NatsSession, answer: (given: HostMessage) => void): void {
    const { store } = this.#options;
    // The worker sends it again.
    if (this.#isStale || this.#wasPaused()) return;
    this.#unanswered++;
    const ended = () => {
      if (--this.#unanswered === 0) this.#answered?.();
    };
    const serve = () =>
      this.#serve(call, session, (given) => {
        answer(given);
        ended();
      });
    if (store.checking === undefined) serve();
    else this.#hold(bytes, store.checking, (isInTime) => (isInTime ? serve() : ended()));
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

  /** Over the connection of the writes of the log: one write to the socket for all of them. */
  #publish(subject: string | undefined, message: HostMessage): boolean {
    const { batch, connection, onProblem } = this.#options;
    if (!subject || connection.isClosed()) return false;
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

type Said<Op> = Extract<WorkerMessage, { op: Op }>;

/** What an answer to this message names. */
const keyOf = (message: WorkerMessage): string =>
  'key' in message ? message.key : 'id' in message ? message.id : 'unknown';

const asHostError = (error: unknown): HostError =>
  isHostError(error) ? error : new HostError('invalid_request', 'the message cannot be read', { cause: error });

const unknownWorker = (): HostError =>
  new HostError('unauthenticated', 'this host has no valid key for the worker', {
    ...{ execution: 'not_executed', reason: 'unknown_key' },
    hint: 'check keys in the configuration of every host: the worker, its nkey and expires',
  });
