/**
 * Serves workers over NATS: requests of workers to the service, and messages of the service to workers.
 * Not here: rows of calls (kv-call-log.ts), accounts (server-config.ts).
 *
 * Invariants: name and epoch of a worker are in the subject, which its account fixes; its role comes from the configuration of this host.
 * Calls wait while the id of the store is checked. Calls that this process may have read long after they were sent are dropped.
 */
import { type Cancel, type Clock, sleep } from '../../kernel/clock.js';
import { HostError, isHostError, notExecuted } from '../../kernel/errors.js';
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
import type { ServiceHandlers, WorkerIdentity, WorkerTransport } from '../service/transport.js';
import { anyWorkerSubject, queueGroup, senderOf, sessionSubject, workerSubject } from './names.js';
import { bufferOf, type NatsConnection, type NatsMessage, type TurnBatch, watchConnection } from './nats-client.js';
import { Outbound } from './outbound.js';
import { packed } from './packed-messages.js';
import { type NatsSession, Sessions } from './sessions.js';
import type { StoreId } from './store-id.js';

export interface HostTransportOptions {
  /** Reads calls only, so that a flood of calls does not delay replies, acknowledgements and cancellations. */
  readonly intake: NatsConnection;
  readonly connection: NatsConnection;
  readonly handlers: ServiceHandlers;
  readonly identities: Identities;
  readonly store: Pick<StoreId, 'id' | 'seenToken' | 'checking' | 'sawToken'>;
  readonly clock: Clock;
  readonly onProblem: (error: unknown) => void;
  readonly batch: TurnBatch;
}

const tickMs = 1_000;
/** A process that did not run for this time (suspended, swapped out) may have old requests in its socket. */
const pauseMs = 20_000;
const stopMs = 3_000;
/** An unknown worker is refused after this time, in which another host may admit it. A worker waits a second for an answer. */
const refusalMs = 300;
/** A worker repeats a call without an answer after this time. Its earlier copy must not be served then: the row may already be removed. */
const heldMs = 5_000;
/** Bytes of calls that wait for the check of the store. Further calls are dropped, and their workers send them again. */
const heldBytesMax = 16 * 1024 * 1024;
/** Hellos of unknown workers that wait for their refusal. Further ones get no answer, and their workers say hello again. */
const refusalsMax = 1_024;

/** The connection that receives each operation. `isShared`: only one of the hosts receives a message. */
const subscribed = [
  // Every host receives hellos, in order with calls: each compares the sequence that the worker has seen.
  { from: 'intake', operation: 'here', isShared: false },
  { from: 'intake', operation: 'call', isShared: true },
  { from: 'intake', operation: 'bye', isShared: false },
  { from: 'connection', operation: 'cancel', isShared: false },
  { from: 'connection', operation: 'ack', isShared: false },
  { from: 'connection', operation: 'ask', isShared: true },
  { from: 'connection', operation: 'manifest', isShared: true },
] as const;

export class HostTransport implements WorkerTransport {
  readonly #sessions: Sessions;
  readonly #subscriptions: { readonly from: string; unsubscribe(): void }[] = [];
  /** Refusals that are due, by the subject of the hello. */
  readonly #refusals = new Map<string, Cancel>();
  /** Messages of this turn of the event loop, by subject. */
  readonly #outbox = new Map<string, HostMessage[]>();
  readonly #outbound: Outbound;
  readonly #stopListening: () => void;
  #stopTick: Cancel = () => {};
  #tickedAt: readonly [number, number] = [0, 0];
  /** True until the intake has a new connection. */
  #isStale = false;
  #heldBytes = 0;

  constructor(private readonly options: HostTransportOptions) {
    this.#outbound = new Outbound(() => options.connection.flush());
    this.#sessions = new Sessions({
      ...options,
      publish: (worker, subject, message) => this.#outbound.take(worker, message) && this.#publish(subject, message),
    });
    this.#stopListening = options.identities.onChange(() => this.#sessions.dropRevoked());
    for (const { from, operation, isShared } of subscribed) {
      const callback = (error: Error | null, message: NatsMessage) => {
        if (error) options.onProblem(error);
        else this.#heard(message, operation);
      };
      const settings = isShared ? { callback, queue: queueGroup } : { callback };
      const subscription = options[from].subscribe(anyWorkerSubject(operation), settings);
      this.#subscriptions.push({ from, unsubscribe: () => subscription.unsubscribe() });
    }
    this.#tick();
    void watchConnection(options.intake, (isConnected) => {
      if (isConnected) this.#isStale = false;
    });
  }

  notify(isWanted: (identity: WorkerIdentity) => boolean, message: HostMessage): void {
    for (const identity of this.options.identities.workers())
      if (isWanted(identity)) this.#publish(workerSubject(identity.name, identity.epoch), message);
  }

  get connectedWorkers(): number {
    return this.#sessions.count;
  }

  async stop(): Promise<void> {
    for (const each of this.#subscriptions) if (each.from === 'intake') each.unsubscribe();
    const { clock, intake } = this.options;
    // When the flush is answered, this host has read every call that nats-server sent before it handled the unsubscribe.
    await Promise.race([intake.flush().catch(() => {}), sleep(clock, stopMs)]);
  }

  async close(): Promise<void> {
    this.#stopTick();
    this.#stopListening();
    for (const cancel of this.#refusals.values()) cancel();
    this.#refusals.clear();
    for (const each of this.#subscriptions) each.unsubscribe();
    this.#sessions.close();
  }

  /** Nothing that a message contains ends the subscription. `operation`: the operation that its subject names. */
  #heard(message: NatsMessage, operation: WorkerMessage['op'], isLate = false): void {
    const { worker, epoch, session: id } = senderOf(message.subject);
    if (!idPattern.test(id)) return;
    const isHello = operation === 'here';
    const refuse = (key: string, error: HostError) =>
      this.#publish(isHello ? message.reply : sessionSubject(worker, epoch, id), { op: 'refused', key, error });
    try {
      const said = readWorkerMessage(bufferOf(message.data));
      if (said.op !== operation) throw invalid('op', `must be ${operation}`);
      const session = this.#sessions.of(worker, epoch, id);
      if (!session && said.op === 'here' && !isLate) this.#hearLater(message);
      else if (!session) refuse(keyOf(said), unknownWorker());
      else if (said.op === 'here') this.#hello(said, session, message.reply);
      else if (said.op === 'bye') this.#sessions.left(session, said.connection);
      else if (said.op === 'call') this.#call(said, message.data.length, session);
      else this.options.handlers.heard(session, said);
    } catch (error) {
      refuse('unknown', asHostError(error));
    }
  }

  /**
   * All hosts answer a hello, and the worker uses the first answer. So a host that does not have a new key yet lets the others answer
   * first.
   */
  #hearLater(hello: NatsMessage): void {
    const { clock } = this.options;
    const { subject } = hello;
    if (this.#refusals.size >= refusalsMax) return;
    this.#refusals.get(subject)?.();
    const late = () => {
      this.#refusals.delete(subject);
      this.#heard(hello, 'here', true);
    };
    this.#refusals.set(subject, clock.at(clock.nowMs() + refusalMs, late));
  }

  #hello({ connection, seen = '' }: Said<'here'>, session: NatsSession, reply: string | undefined): void {
    const { store } = this.options;
    store.sawToken(seen);
    this.#sessions.connected(session, connection);
    const welcome = () => {
      const { name: worker, role } = session.identity() ?? {};
      if (worker === undefined) this.#publish(reply, { op: 'refused', key: 'hello', error: unknownWorker() });
      else this.#publish(reply, { op: 'welcome', worker, role, storeId: store.id, seen: store.seenToken });
    };
    if (store.checking !== undefined) void store.checking.then(welcome);
    else welcome();
  }

  /** A call that is dropped here is sent again by its worker. */
  #call(call: Said<'call'>, bytes: number, session: NatsSession): void {
    const { store, handlers } = this.options;
    const { checking } = store;
    if (this.#isPaused()) return;
    if (checking === undefined) return handlers.heard(session, call);
    if (this.#heldBytes + bytes > heldBytesMax) return;
    const heldAt = this.#now();
    this.#heldBytes += bytes;
    void checking.then(() => {
      this.#heldBytes -= bytes;
      if (!this.#isPaused() && this.#sinceMs(heldAt) < heldMs) handlers.heard(session, call);
    });
  }

  /** Uses the connection over which the log writes, so that one write to the socket has the messages of log and transport. */
  #publish(subject: string | undefined, message: HostMessage): boolean {
    const { batch, connection } = this.options;
    if (!subject || connection.isClosed()) return false;
    const others = this.#outbox.get(subject);
    if (others) return others.push(message) > 0;
    this.#outbox.set(subject, [message]);
    batch.add(() => this.#sendAll(subject));
    return true;
  }

  #sendAll(subject: string): void {
    const { connection, onProblem, store } = this.options;
    const messages = this.#outbox.get(subject) ?? [];
    this.#outbox.delete(subject);
    // Only the last receipt gets the signed sequence, which covers the rows of all receipts: a signature costs as much as a message.
    const last = messages.findLast(({ op }) => op === 'receipt');
    try {
      const encoded = messages.map((each) =>
        joinedParts(writeMessage(each === last ? ({ ...each, seen: store.seenToken } as HostMessage) : each)),
      );
      for (const each of packed(encoded)) connection.publish(subject, each);
      this.#outbound.published();
    } catch (error) {
      if (!connection.isClosed()) onProblem(error);
    }
  }

  #tick(): void {
    const { clock } = this.options;
    this.#tickedAt = this.#now();
    this.#stopTick = clock.at(clock.nowMs() + tickMs, () => {
      this.#isPaused();
      this.#tick();
    });
  }

  /**
   * Rows are removed a minute after the deadline of their calls. After a pause of the process, or a sleep of the machine (which only wall
   * time shows), the socket may have requests that are older than that. A new connection has no old requests.
   */
  #isPaused(): boolean {
    const { intake, onProblem } = this.options;
    if (this.#sinceMs(this.#tickedAt) >= pauseMs) {
      if (!this.#isStale) void intake.reconnect().catch(onProblem);
      this.#tickedAt = this.#now();
      this.#isStale = true;
    }
    return this.#isStale;
  }

  #now(): readonly [number, number] {
    const { clock } = this.options;
    return [clock.nowMs(), clock.date().getTime()];
  }

  #sinceMs([beforeMs, wallMs]: readonly [number, number]): number {
    const [nowMs, nowWallMs] = this.#now();
    return Math.max(nowMs - beforeMs, nowWallMs - wallMs);
  }
}

type Said<Op> = Extract<WorkerMessage, { op: Op }>;

/** The key or id by which an answer names this message. */
const keyOf = (message: WorkerMessage): string =>
  'key' in message ? message.key : 'id' in message ? message.id : 'unknown';

const asHostError = (error: unknown): HostError =>
  isHostError(error) ? error : new HostError('invalid_request', 'the message cannot be read', { cause: error });

const unknownWorker = (): HostError => {
  const hint = 'check keys in the configuration of every host: the worker, its nkey and expires';
  const facts = { reason: 'unknown_key' };
  return notExecuted('unauthenticated', 'this host has no valid key for the worker', hint, facts);
};
