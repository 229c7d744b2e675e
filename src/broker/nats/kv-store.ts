/**
 * Rows and reply bodies on a NATS server. A row is one line of JSON, and after it the bytes of the reply if there is one. It says which
 * write made it, so that a host can tell later whether a write without an answer was made.
 * Not here: the id of the store (store-id.ts).
 *
 * Invariants: a write resolves when the server acknowledged it, or when the row that is read back names it. A write that is meant for
 * one store id is not made in a store with another id.
 */
import type { JetStreamClient, JetStreamManager, StreamInfo } from '@nats-io/jetstream';
import type { KV } from '@nats-io/kv';
import { type Clock, sleep } from '../../kernel/clock.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import { type CallState, callStates } from '../calls/call-log.js';
import { createStores } from './create-stores.js';
import { type Bucket, bodiesStream, bodySubject, callsBucket, keysBucket, streamOf } from './names.js';
import { bufferOf, isNoResponders, loadJetStream, loadKv, type NatsConnection } from './nats-client.js';
import { noStream, RowWrites, type TurnBatch } from './row-writes.js';
import { StoreId } from './store-id.js';

export interface StoredRow {
  readonly state: CallState;
  readonly owner: string;
  readonly digest: string;
  readonly attempts: number;
  /** Id of the store when the row was written. A row of an older copy has another one: it may have changed since. */
  readonly storeId: string;
  /** Unique for each write, over all hosts. */
  readonly write: string;
  /** The worker was revoked: the row gets no reply, and a call that was not begun counts as removed. */
  readonly isPurged: boolean;
  /** Sequence of the reply in the stream of bodies, and its length. */
  readonly body: { readonly seq: number; readonly length: number } | undefined;
  /** A reply that is in the row itself. */
  readonly inline: Buffer | undefined;
}

function writeRow({ state, owner, digest, attempts, storeId, write, isPurged, body, inline }: StoredRow): Buffer {
  const head = JSON.stringify({
    ...{ s: state, o: owner, d: digest, a: attempts, i: storeId, w: write },
    ...(isPurged ? { p: 1 } : {}),
    ...(body ? { b: [body.seq, body.length] } : {}),
  });
  return inline ? Buffer.concat([Buffer.from(`${head}\n`), inline]) : Buffer.from(head);
}

function readRow(bytes: Buffer): StoredRow {
  try {
    const end = bytes.indexOf(10);
    const text = end < 0 ? bytes : bytes.subarray(0, end);
    const { s, o, d, a, i, w, p, b } = JSON.parse(text.toString()) as Record<string, unknown>;
    const state = callStates.find((each) => each === s);
    if (state === undefined || typeof o !== 'string' || typeof d !== 'string' || typeof a !== 'number')
      throw new Error('a member is missing');
    const [seq, length] = (b ?? []) as number[];
    return {
      ...{ state, owner: o, digest: d, attempts: a, storeId: String(i), write: String(w), isPurged: p === 1 },
      body: seq === undefined || length === undefined ? undefined : { seq, length },
      inline: end < 0 ? undefined : bytes.subarray(end + 1),
    };
  } catch (cause) {
    throw new HostError('protocol_error', 'a row of the log of calls on the NATS server cannot be read', {
      ...{
        execution: 'uncertain',
        cause,
        hint: 'run one version of Hostler on all hosts, and let no other program write there',
      },
    });
  }
}

export type Written =
  | { readonly kind: 'written'; readonly seq: number }
  | { readonly kind: 'conflict' }
  | { readonly kind: 'full' };
export interface VersionedRow {
  readonly row: StoredRow;
  readonly seq: number;
}

export interface StoreUse {
  readonly bytes: number;
  readonly rows: number;
  /** Time until NATS removes the oldest entry, at the latest. */
  readonly firstExpiryMs: number;
}

export interface KvStoreOptions {
  readonly connection: NatsConnection;
  readonly clock: Clock;
  readonly replicas: number;
  readonly owner: string;
  readonly onProblem: (error: unknown) => void;
  readonly batch: TurnBatch;
  readonly onNewStore: () => void;
}

interface Parts {
  readonly js: JetStreamClient;
  readonly jsm: JetStreamManager;
  readonly buckets: Readonly<Record<Bucket, KV>>;
  readonly id: StoreId;
  readonly writes: RowWrites;
}

/** A read without an answer, e.g. after a change of the leader, is tried again after this time. */
const answerMs = 1_000;
/** The answer to a body of 4 MiB. */
const bodyMs = 6_000;
const retryMs = 100;
/** A write that is not known to be made after this time is given up. */
export const writeMs = 10_000;
/** Longest time in which a new row may be created. */
const createMs = 20_000;
/** Error codes of JetStream. */
const wrongSequence = [10071, 10164];
const noRoom = [10077, 10047, 10023];
const notFound = [10037, noStream];

export class KvStore {
  readonly id: StoreId;
  readonly #options: KvStoreOptions;
  readonly #parts: Parts;
  #writes = 0;
  #creating: Promise<void> | undefined;

  private constructor(options: KvStoreOptions, parts: Parts) {
    this.id = parts.id;
    this.#options = options;
    this.#parts = parts;
  }

  /** Makes buckets and stream where they are missing. Throws if they have other settings. */
  static async open(options: KvStoreOptions): Promise<KvStore> {
    const { connection, replicas } = options;
    const { jetstream, jetstreamManager } = await loadJetStream();
    const { Kvm } = await loadKv();
    const jsm = await jetstreamManager(connection, { timeout: answerMs });
    const js = jetstream(connection, { timeout: answerMs });
    await createStores(jsm, replicas);
    const kvm = new Kvm(js);
    // Reads go to the leader: a direct read may be answered by a follower that is behind.
    const open = (bucket: string) => kvm.open(bucket, { allow_direct: false });
    const [calls, keys] = [await open(callsBucket), await open(keysBucket)];
    const infos = async () => ({
      [callsBucket]: await jsm.streams.info(streamOf(callsBucket)),
      [keysBucket]: await jsm.streams.info(streamOf(keysBucket)),
    });
    const info = async () => {
      try {
        return await infos();
      } catch (error) {
        if (!notFound.includes(codeOf(error))) throw error;
        await createStores(jsm, replicas);
        return infos();
      }
    };
    const writes = await RowWrites.open(connection, options.clock, options.batch);
    const id = await StoreId.open({ ...options, bucket: calls, info, onLoss: () => writes.fail() });
    return new KvStore(options, { js, jsm, id, writes, buckets: { [callsBucket]: calls, [keysBucket]: keys } });
  }

  /** A name for one write, for its row. */
  newWrite(): string {
    return `${this.#options.owner}.${++this.#writes}`;
  }

  /**
   * Writes the row if the stored row has the sequence `expected`; 0: no row is stored. Without an acknowledgement the row is read back, and
   * the write is tried again. Rejects if the result is not known in time, or if the store has another id than `storeId`.
   */
  async write(bucket: Bucket, key: string, row: StoredRow, expected: number, storeId: string): Promise<Written> {
    const { clock, connection } = this.#options;
    const { id } = this;
    const value = writeRow(row);
    const untilMs = clock.nowMs() + writeMs;
    const startedAtMs = clock.date().getTime();
    for (;;) {
      await id.checking;
      id.require(storeId);
      // Wall time, because the machine may have slept meanwhile: the row of an earlier copy of the call may be removed by now.
      if (expected === 0 && clock.date().getTime() - startedAtMs > createMs) throw storeError(undefined);
      const { losses } = id;
      try {
        const seq = await this.#parts.writes.put(`$KV.${bucket}.${key}`, value, expected);
        const isInOrder = id.sawWrite(bucket, seq);
        if (isInOrder && losses === id.losses) return { kind: 'written', seq };
        // The write may have reached another store than `storeId`.
        id.check();
        await id.checking;
        if (id.id !== storeId) await this.remove(bucket, seq).catch(() => {});
        id.require(storeId);
        return { kind: 'written', seq };
      } catch (error) {
        if (isHostError(error)) throw error;
        const code = codeOf(error);
        if (noRoom.includes(code)) return { kind: 'full' };
        if (code === noStream) await this.#createAgain();
        const there = await this.read(bucket, key).catch(() => 'unknown' as const);
        if (there !== 'unknown' && there?.row.write === row.write) return { kind: 'written', seq: there.seq };
        if (wrongSequence.includes(code) && there !== 'unknown') return { kind: 'conflict' };
        if (connection.isClosed() || clock.nowMs() >= untilMs) throw storeError(error);
        await sleep(clock, retryMs);
      }
    }
  }

  async read(bucket: Bucket, key: string): Promise<VersionedRow | undefined> {
    await this.id.checking;
    const entry = await this.#parts.buckets[bucket].get(key).catch(unlessMissing);
    return entry ? { row: readRow(bufferOf(entry.value)), seq: entry.revision } : undefined;
  }

  remove(bucket: Bucket, seq: number): Promise<void> {
    return this.#delete(streamOf(bucket), seq);
  }

  /** Undefined: there is no room. */
  async addBody(key: string, bytes: Buffer, write: string): Promise<number | undefined> {
    await this.id.checking;
    try {
      return (await this.#parts.js.publish(bodySubject(key), bytes, { msgID: write, timeout: bodyMs })).seq;
    } catch (error) {
      if (noRoom.includes(codeOf(error))) return undefined;
      if (isNoResponders((error as Error).cause ?? error)) await this.#createAgain();
      throw storeError(error);
    }
  }

  /** Undefined: it was removed. */
  async readBody(seq: number): Promise<Buffer | undefined> {
    const message = await this.#parts.jsm.direct.getMessage(bodiesStream, { seq }).catch(unlessMissing);
    return message ? bufferOf(message.data) : undefined;
  }

  removeBody(seq: number): Promise<void> {
    return this.#delete(bodiesStream, seq);
  }

  /** Keys of rows below these tokens. */
  async keysBelow(bucket: Bucket, filter: string): Promise<string[]> {
    await this.id.checking;
    const prefix = `$KV.${bucket}.`;
    const options = { subjects_filter: `${prefix}${filter}.>` };
    const { state } = await this.#parts.jsm.streams.info(streamOf(bucket), options);
    return Object.keys(state.subjects ?? {}).map((subject) => subject.slice(prefix.length));
  }

  async used(stream: string): Promise<StoreUse> {
    const info: StreamInfo & { readonly ts?: string } = await this.#parts.jsm.streams.info(stream);
    const { state, config, ts } = info;
    // All times are of the server. One older than 2.10 does not say its own: the time of the last entry is before it.
    const ageMs = Date.parse(ts ?? state.last_ts) - Date.parse(state.first_ts);
    return { bytes: state.bytes, rows: state.messages, firstExpiryMs: config.max_age / 1e6 - ageMs };
  }

  /** A stream was deleted under the connection, or has no leader now. The id tells whether rows are lost. All that wait share one try. */
  #createAgain(): Promise<void> {
    this.#creating ??= createStores(this.#parts.jsm, this.#options.replicas)
      .catch(() => {})
      .finally(() => {
        this.#creating = undefined;
        this.id.check();
      });
    return this.#creating;
  }

  async #delete(stream: string, seq: number): Promise<void> {
    await this.#parts.jsm.streams.deleteMessage(stream, seq, false).catch(unlessMissing);
  }
}

const codeOf = (error: unknown): number => {
  const { code } = error as { code?: unknown };
  return typeof code === 'number' ? code : 0;
};

function unlessMissing(error: unknown): undefined {
  if (!notFound.includes(codeOf(error)) && !/not found|no message|sequence/i.test(String(error)))
    throw storeError(error);
}

const storeError = (cause: unknown): HostError =>
  new HostError('transport', 'the store on the NATS server did not answer as expected', {
    ...{ execution: 'uncertain', cause, hint: 'look at the log of nats-server' },
  });
