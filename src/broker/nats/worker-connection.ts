/**
 * The connection of a worker to hosts on NATS. Hosts answer on the subject of the session; nothing is stored for a worker.
 * Not here: matching answers with requests, sending calls again (worker/).
 */
import { type Cancel, type Clock, sleep } from '../../kernel/clock.js';
import { type HostError, isHostError, notExecuted } from '../../kernel/errors.js';
import { newId } from '../../kernel/random.js';
import { joinedParts } from '../../wire/json-edit.js';
import { readHostMessage, type Welcome, type WorkerMessage, writeMessage } from '../protocol/messages.js';
import { MessageConnection, type OpenConnection, type OpenConnectionOptions } from '../worker/connection.js';
import { workerPublishSubject, workerSubscribeSubjects } from './names.js';
import {
  bufferOf,
  connectNats,
  isNoResponders,
  lostConnection,
  type NatsAddress,
  type NatsConnection,
} from './nats-client.js';
import { unpacked } from './packed-messages.js';
import { helloMs } from './sessions.js';

export interface NatsConnectionOptions extends NatsAddress {
  /** The name that the user expects this worker to have. The key alone decides which worker it is. */
  readonly worker?: string | undefined;
  readonly clock: Clock;
}

/** A hello is repeated if no host answers within this time. */
const helloAnswerMs = 1_000;
/** Time for all hellos of one connection attempt. */
const admittedMs = 5_000;
/** A request without an answer for this long is sent again. A receipt comes only when the row is durable. */
const answerMs = 5_000;
const closeMs = 2_000;

/** The store that this worker process used last, and the highest sequence that it saw there. Hosts check that the store still has it. */
interface Seen {
  storeId: string;
  token: string;
}

/** Opens connections of one worker process, one after the other. */
export function openNatsConnection(options: NatsConnectionOptions): OpenConnection {
  const seen = { storeId: '', token: '' };
  return async (opening: OpenConnectionOptions) => {
    const nats = await connectNats({ ...options, name: 'hostler worker', reconnects: false });
    const connection = new NatsWorkerConnection(nats, options.clock, opening, seen);
    try {
      await connection.admit();
      if (options.worker !== undefined && options.worker !== connection.worker)
        throw wrongWorker(connection.worker, options.worker);
      return connection;
    } catch (error) {
      await connection.close();
      throw error;
    }
  };
}

class NatsWorkerConnection extends MessageConnection {
  readonly #id = newId();
  #refusal: HostError | undefined;
  #stopHello: Cancel | undefined;

  constructor(
    private readonly nats: NatsConnection,
    private readonly clock: Clock,
    private readonly opening: OpenConnectionOptions,
    private readonly seen: Seen,
  ) {
    super(answerMs, opening.heard);
    void nats.closed().then((error) => {
      this.#stopHello?.();
      this.ended(this.#refusal ?? (this.isClosing ? undefined : lostConnection(error || undefined)));
    });
    const callback = (error: Error | null, { data }: { data: Uint8Array }) => {
      try {
        if (error) throw error;
        for (const message of unpacked(bufferOf(data))) this.heard(readHostMessage(message));
      } catch (thrown) {
        this.#end(isHostError(thrown) ? thrown : lostConnection(thrown));
      }
    };
    for (const subject of workerSubscribeSubjects(opening.session)) nats.subscribe(subject, { callback });
  }

  /** Resolves when a host admitted the worker. */
  async admit(): Promise<void> {
    const { signal } = this.opening;
    const untilMs = this.clock.nowMs() + admittedMs;
    for (;;) {
      if (signal.aborted) throw notExecuted('cancelled', 'the connection to the broker is no longer needed');
      try {
        await this.#hello(this.seen.token || undefined);
        return this.#helloLater();
      } catch (error) {
        if (isHostError(error)) throw error;
        if (this.nats.isClosed()) throw (await this.closed) ?? noHost(error);
        if (isNoResponders(error)) throw notReloaded(error);
        if (this.clock.nowMs() >= untilMs) throw noHost(error);
      }
    }
  }

  override send(message: WorkerMessage, sent?: () => void): boolean {
    const bytes = joinedParts(writeMessage(message));
    try {
      this.nats.publish(workerPublishSubject(message.op, this.opening.session), bytes);
    } catch {
      // The connection has ended.
      return false;
    }
    sent?.();
    return true;
  }

  protected override async disconnect(): Promise<void> {
    this.send({ op: 'bye', connection: this.#id });
    await Promise.race([this.nats.flush().catch(() => {}), sleep(this.clock, closeMs)]);
    await this.nats.close();
  }

  /** Keeps the higher sequence of the same store: another host may know a lower one. */
  protected override welcomed(welcome: Welcome): void {
    const { storeId, seen: token = '' } = welcome;
    if (this.seen.storeId !== storeId || sequenceOf(token) > sequenceOf(this.seen.token))
      Object.assign(this.seen, { storeId, token });
    super.welcomed(welcome);
  }

  /** Rejects with a HostError if a host refuses the worker, and with an error of NATS if none answers. */
  async #hello(seen?: string): Promise<void> {
    const hello = joinedParts(writeMessage({ op: 'here', connection: this.#id, seen }));
    const subject = workerPublishSubject('here', this.opening.session);
    const { data } = await this.nats.request(subject, hello, { timeout: helloAnswerMs });
    const answer = readHostMessage(bufferOf(data));
    if (answer?.op === 'refused') throw answer.error;
    if (answer?.op !== 'welcome') throw noHost(undefined);
    this.welcomed(answer);
  }

  /** The repeated hello keeps the session alive at the hosts, and tells the worker if its key was revoked. */
  #helloLater(): void {
    this.#stopHello = this.clock.at(this.clock.nowMs() + helloMs, () => {
      if (this.isClosing) return;
      this.#helloLater();
      this.#hello().catch((error) => {
        if (isHostError(error) && error.code === 'unauthenticated') this.#end(error);
      });
    });
  }

  #end(error: HostError): void {
    this.#refusal ??= error;
    void this.nats.close();
  }
}

const sequenceOf = (token: string): number => Number.parseInt(token, 10) || 0;

const wrongWorker = (actual: string, wanted: string): HostError => {
  const hint = 'write the name of the worker into the address, or use its key';
  const facts = { reason: 'wrong_worker' };
  return notExecuted('denied', `the key belongs to worker '${actual}', not to '${wanted}'`, hint, facts);
};

const noHost = (cause: unknown): HostError => {
  const hint = 'start hostler up with broker.url on some machine, and reload nats-server if the worker is new';
  return notExecuted('connect_failed', 'no host answers on NATS', hint, { reason: 'no_host', cause });
};

/** The account of the worker has no import: nats-server 2.9 adds it with the second reload. */
const notReloaded = (cause: unknown): HostError => {
  const message = 'nats-server knows the key of this worker, but not yet where its requests go';
  const hint = 'reload nats-server once more (hostler key nats --reload PID)';
  return notExecuted('connect_failed', message, hint, { reason: 'not_reloaded', cause });
};
