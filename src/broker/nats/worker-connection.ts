/**
 * The connection of a worker to hosts on NATS. Hosts answer core requests; nothing is stored for a worker.
 * Not here: sending calls again, which is the same on every transport (worker/).
 *
 * Invariants: every promise settles when the connection is closed, at the latest. A cancellation is repeated until the host that has the
 * call answers, its reply comes, or a minute has passed.
 */
import type { CancelSignal } from '../../kernel/cancel-signal.js';
import { type Cancel, type Clock, sleep } from '../../kernel/clock.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import { newId } from '../../kernel/random.js';
import { joinedParts } from '../../wire/json-edit.js';
import { brokerLimits } from '../protocol/limits.js';
import {
  type CallRequest,
  type HostMessage,
  readHostMessage,
  type Welcome,
  type WorkerMessage,
  writeMessage,
} from '../protocol/messages.js';
import type { AskedCalls } from '../service/transport.js';
import type {
  ConnectionHandlers,
  OpenConnection,
  OpenConnectionOptions,
  Receipt,
  WorkerConnection,
} from '../worker/connection.js';
import { workerHears, workerSays } from './names.js';
import {
  bufferOf,
  connectNats,
  isNoResponders,
  lostConnection,
  type NatsAddress,
  type NatsConnection,
  type NatsMessage,
  notExecuted,
} from './nats-client.js';
import { helloMs } from './sessions.js';

export interface NatsConnectionOptions extends NatsAddress {
  /** The name that the user expects. The key alone decides which worker this is. */
  readonly worker?: string | undefined;
  readonly clock: Clock;
}

/** A hello to which no host answers is said again; so long in all. */
const helloAnswerMs = 1_000;
const admittedMs = 5_000;
/** The receipt comes when the row is durable. */
const receiptMs = 5_000;
const answerMs = 5_000;
/** An owner that does not answer in this time may be gone: another host is asked. */
const ownerMs = 500;
const cancelMs = 500;
const cancelMsMax = 5_000;
const cancelForMs = 60_000;
const closeMs = 2_000;

/** Opens connections of one worker process, one after the other. */
export function openNatsConnection(options: NatsConnectionOptions): OpenConnection {
  // Kept over reconnects: the next store must have what this worker has seen of the last one.
  const seen = { storeId: '', token: '' };
  return async ({ session, handlers, signal }: OpenConnectionOptions) => {
    const nats = await connectNats({ ...options, name: 'hostler worker', reconnects: false });
    const connection = new NatsWorkerConnection(nats, { session, handlers, clock: options.clock, seen });
    try {
      await connection.admit(signal);
      if (options.worker !== undefined && options.worker !== connection.worker)
        throw wrongWorker(connection.worker, options.worker);
      return connection;
    } catch (error) {
      await connection.close();
      throw error;
    }
  };
}

interface Parts {
  readonly session: string;
  readonly handlers: ConnectionHandlers;
  readonly clock: Clock;
  readonly seen: { storeId: string; token: string };
}

class NatsWorkerConnection implements WorkerConnection {
  readonly closed: Promise<HostError | undefined>;
  readonly #nats: NatsConnection;
  readonly #parts: Parts;
  readonly #id = newId();
  readonly #cancels = new Map<string, Cancel>();
  /** End the wait for receipts, because a host has come that never heard the requests. */
  readonly #unanswered = new Set<() => void>();
  #welcome: Welcome = { worker: '', storeId: '' };
  #refusal: HostError | undefined;
  #isClosing = false;
  #stopHello: Cancel | undefined;

  constructor(nats: NatsConnection, parts: Parts) {
    this.#nats = nats;
    this.#parts = parts;
    this.closed = nats.closed().then((error) => {
      this.#stopHello?.();
      for (const cancel of this.#cancels.values()) cancel();
      if (this.#refusal) return this.#refusal;
      return this.#isClosing ? undefined : lostConnection(error || undefined);
    });
    const callback = (error: Error | null, { data }: { data: Uint8Array }) => {
      try {
        if (error) throw error;
        this.#heard(bufferOf(data));
      } catch (thrown) {
        this.#end(isHostError(thrown) ? thrown : lostConnection(thrown));
      }
    };
    for (const subject of workerHears(parts.session)) nats.subscribe(subject, { callback });
  }

  get worker(): string {
    return this.#welcome.worker;
  }

  get role(): string | undefined {
    return this.#welcome.role;
  }

  get storeId(): string {
    return this.#welcome.storeId;
  }

  /** Resolves when a host admitted the worker. */
  async admit(signal: CancelSignal): Promise<void> {
    const { clock, seen } = this.#parts;
    const untilMs = clock.nowMs() + admittedMs;
    for (;;) {
      if (signal.aborted) throw new HostError('cancelled', 'the connection is not needed any more', notExecuted);
      try {
        await this.#hello(seen.token || undefined);
        break;
      } catch (error) {
        if (isHostError(error) && error.code !== 'transport') throw error;
        if (this.#nats.isClosed()) throw (await this.closed) ?? noHost(error);
        if (isHostError(error) && isNoResponders(error.cause)) throw notReloaded(error);
        if (clock.nowMs() >= untilMs) throw noHost(error);
      }
    }
    this.#helloLater();
  }

  async call(request: CallRequest): Promise<Receipt> {
    const { owner, storeId, seen } = await this.#untilServing(
      this.#request({ op: 'call', ...request }, 'receipt', receiptMs),
    );
    this.#welcomed({ ...this.#welcome, storeId, seen });
    return { owner, storeId };
  }

  async ask(owner: string, keys: readonly string[]): Promise<AskedCalls> {
    const { clock } = this.#parts;
    const asked = this.#request({ op: 'ask', id: newId(), keys }, 'asked', answerMs, owner);
    const answered = asked.then(
      () => true,
      () => false,
    );
    if (!(await Promise.race([answered, sleep(clock, ownerMs)]))) {
      // Another host knows whether the owner is gone. The answer of the owner may come before that.
      const gone = this.#request({ op: 'gone', owner }, 'owner', answerMs).then(({ isGone }) => isGone);
      const isThere = await Promise.race([answered, gone.then((isGone) => !isGone)]).catch(() => true);
      if (!isThere && !(await gone.catch(() => false))) throw noAnswer(undefined);
      if (!isThere) throw noOwner();
    }
    const { running, resend } = await asked;
    return { running, resend };
  }

  cancel(key: string): void {
    if (this.#cancels.has(key)) return;
    const { clock } = this.#parts;
    const untilMs = clock.nowMs() + cancelForMs;
    const attempt = (waitMs: number) => {
      if (clock.nowMs() >= untilMs || this.#nats.isClosed()) return this.#stopCancel(key);
      const again = () => attempt(Math.min(2 * waitMs, cancelMsMax));
      this.#cancels.set(key, clock.at(clock.nowMs() + waitMs, again));
      this.#ask({ op: 'cancel', key }, waitMs).then(
        () => this.#stopCancel(key),
        () => {},
      );
    };
    attempt(cancelMs);
  }

  taken(keys: readonly string[]): void {
    const step = brokerLimits.keysPerMessage;
    for (let at = 0; at < keys.length; at += step) this.#publish({ op: 'taken', keys: keys.slice(at, at + step) });
  }

  async manifest(): Promise<Buffer> {
    return (await this.#request({ op: 'manifest', id: newId() }, 'manifest', answerMs)).body;
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    this.#publish({ op: 'bye', connection: this.#id });
    await Promise.race([this.#nats.flush().catch(() => {}), sleep(this.#parts.clock, closeMs)]);
    await this.#nats.close();
    await this.closed;
  }

  async #hello(seen?: string): Promise<void> {
    this.#welcomed(await this.#request({ op: 'here', connection: this.#id, seen }, 'welcome', helloAnswerMs));
  }

  /** Another host may have seen less of the same store. */
  #welcomed(welcome: Welcome): void {
    const { seen } = this.#parts;
    const { storeId, seen: token = '' } = welcome;
    if (seen.storeId !== storeId || sequenceOf(token) > sequenceOf(seen.token))
      [seen.storeId, seen.token] = [storeId, token];
    this.#welcome = welcome;
  }

  /** Hosts see by it that the worker is there, and the worker that its key was revoked. */
  #helloLater(): void {
    const { clock } = this.#parts;
    this.#stopHello = clock.at(clock.nowMs() + helloMs, () => {
      if (this.#isClosing) return;
      this.#helloLater();
      this.#hello().catch((error) => {
        if (isHostError(error) && error.code === 'unauthenticated') this.#end(error);
      });
    });
  }

  #heard(bytes: Buffer): void {
    const { handlers } = this.#parts;
    const message = readHostMessage(bytes);
    if (message?.op === 'reply') {
      this.#stopCancel(message.key);
      handlers.reply(message.key, message.body, message.digest);
    } else if (message?.op === 'progress') handlers.progress(message.key, message.params);
    else if (message?.op === 'manifest_changed') handlers.manifestChanged(message.revision);
    else if (message?.op === 'serving') for (const giveUp of [...this.#unanswered]) giveUp();
  }

  /** nats-server does not tell a worker that no host heard a request. */
  #untilServing<T>(answer: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const giveUp = () => reject(noAnswer(undefined).with({ retryAfterMs: 0 }));
      this.#unanswered.add(giveUp);
      answer.then(resolve, reject).finally(() => this.#unanswered.delete(giveUp));
    });
  }

  #stopCancel(key: string): void {
    this.#cancels.get(key)?.();
    this.#cancels.delete(key);
  }

  #end(error: HostError): void {
    this.#refusal ??= error;
    void this.#nats.close();
  }

  /** `owner`: the host that is asked. */
  async #request<Op extends HostMessage['op']>(message: WorkerMessage, op: Op, ms: number, owner?: string) {
    const answer = readHostMessage(bufferOf((await this.#ask(message, ms, owner)).data));
    if (answer?.op === 'refused') throw answer.error;
    if (answer?.op !== op) throw unreadable(message.op);
    return answer as Extract<HostMessage, { op: Op }>;
  }

  async #ask(message: WorkerMessage, timeout: number, owner?: string): Promise<NatsMessage> {
    const subject = workerSays(message.op, this.#parts.session, owner);
    try {
      return await this.#nats.request(subject, joinedParts(writeMessage(message)), { timeout });
    } catch (error) {
      throw noAnswer(error);
    }
  }

  #publish(message: WorkerMessage): void {
    try {
      this.#nats.publish(workerSays(message.op, this.#parts.session), joinedParts(writeMessage(message)));
    } catch {
      // The connection has ended. A host that misses `taken` asks nothing: the reply is removed later.
    }
  }
}

const sequenceOf = (token: string): number => Number.parseInt(token, 10) || 0;

const wrongWorker = (actual: string, wanted: string): HostError =>
  new HostError('denied', `the key belongs to worker '${actual}', not to '${wanted}'`, {
    ...{ ...notExecuted, reason: 'wrong_worker' },
    hint: 'write the name of the worker into the address, or use its key',
  });

const noAnswer = (cause: unknown): HostError =>
  new HostError('transport', 'no host answered on NATS', { execution: 'uncertain', cause });

const noOwner = (): HostError =>
  new HostError('connect_failed', 'the host that received the call is gone', { ...notExecuted, reason: 'no_owner' });

const noHost = (cause: unknown): HostError =>
  new HostError('connect_failed', 'no host answers on NATS', {
    ...{ ...notExecuted, reason: 'no_host', cause },
    hint: 'start hostler up with broker.url on some machine, and reload nats-server if the worker is new',
  });

/** The account of the worker has no import: nats-server 2.9 adds it with the second reload. */
const notReloaded = (cause: unknown): HostError =>
  new HostError('connect_failed', 'nats-server knows the key of this worker, but not yet where its requests go', {
    ...{ ...notExecuted, reason: 'not_reloaded', cause },
    hint: 'reload nats-server once more (hostler key nats --reload PID)',
  });

const unreadable = (what: string): HostError =>
  new HostError('protocol_error', `the answer of the host to ${what} cannot be read`, { execution: 'uncertain' });
