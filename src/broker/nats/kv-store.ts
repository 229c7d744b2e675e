/**
 * Rows and reply bodies on a NATS server. A row is one line of JSON, and after it the bytes of the reply if there is one. It says which
 * write made it, so that a host can tell later whether a write without an answer was made.
 * Not here: the id of the store (store-id.ts).
 *
 * Invariants: a write resolves when the server acknowledged it, or when the row that is read back names it. A write that is meant for
 * one store id is not made in a store with another id.
 */
import type { JetStreamManager, StreamInfo } from '@nats-io/jetstream';
import type { MsgHdrs } from '@nats-io/transport-node';
import { type Clock, sleep } from '../../kernel/clock.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import { joinedParts } from '../../wire/json-edit.js';
import { type CallState, callStates } from '../calls/call-log.js';
import { PendingAnswers } from '../protocol/pending-answers.js';
import { createStores } from './create-stores.js';
import { type Bucket, bodiesStream, bodySubject, callsBucket, storeKey, streamOf } from './names.js';
import {
  bufferOf,
  codeOf,
  isNoResponders,
  loadJetStream,
  loadNats,
  type NatsConnection,
  noStream,
  type TurnBatch,
  wrongSequence,
} from './nats-client.js';
import { StoreId } from './store-id.js';

export interface StoredRow {
  readonly state: CallState;
  readonly owner: string;
  readonly digest: string;
  readonly attempts: number;
  /** Id of the store when the row was written. A row of an older copy has another id, and may have changed since. */
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

/** Members that are undefined are left out. */
function writeRow({ state, owner, digest, attempts, storeId, write, isPurged, body, inline }: StoredRow): Buffer {
  const [p, b] = [isPurged ? 1 : undefined, body && [body.seq, body.length]];
  const head = JSON.stringify({ s: state, o: owner, d: digest, a: attempts, i: storeId, w: write, p, b });
  return joinedParts(inline ? [`${head}\n`, inline] : [head]);
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

/** The sequence of the row; `conflict`: another version of the row is stored. */
export type Written = number | 'conflict' | 'full';

export interface FoundRow {
  readonly bucket: Bucket;
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

/** A read without an answer, e.g. after a change of the leader, is tried again after this time. */
const answerMs = 1_000;
/** Time for the answer to a body of 4 MiB. */
const bodyMs = 6_000;
const retryMs = 100;
/** A write whose result is not known after this time is given up. */
export const writeMs = 10_000;
/** An acknowledgement may never come, e.g. after a change of the leader. */
const acknowledgedMs = 1_000;
/** Longest time in which a new row may be created. */
const createMs = 20_000;
/** In a message of the stream of bodies: the write that made it. */
const writeHeader = 'Nats-Msg-Id';
const noRoom = [10077, 10047, 10023];
const notFound = [10037, noStream];

export class KvStore {
  #writeCount = 0;
  #creating: Promise<void> | undefined;
  #isClosed = false;

  private constructor(
    private readonly options: KvStoreOptions,
    private readonly jsm: JetStreamManager,
    private readonly writes: RowWrites,
    readonly id: StoreId,
  ) {}

  /** Makes buckets and stream where they are missing. Throws if they have other settings. */
  static async open(options: KvStoreOptions): Promise<KvStore> {
    const { jetstreamManager } = await loadJetStream();
    const jsm = await jetstreamManager(options.connection, { timeout: answerMs });
    const create = () => createStores(jsm, options.replicas);
    await create();
    const info = async (bucket: Bucket) => {
      const look = () => jsm.streams.info(streamOf(bucket));
      return look().catch((error) => {
        if (!notFound.includes(codeOf(error))) throw error;
        return create().then(look);
      });
    };
    const writes = new RowWrites(options, await loadNats());
    const row = {
      read: () => lastOf(jsm, callsBucket, storeKey),
      write: (value: string, seq: number) =>
        writes.put(subjectOf(callsBucket, storeKey), Buffer.from(value), seq).catch((error) => {
          if (!wrongSequence.includes(codeOf(error))) throw error;
          return undefined;
        }),
    };
    const id = await StoreId.open({ ...options, row, info, onLoss: () => writes.fail() });
    return new KvStore(options, jsm, writes, id);
  }

  /** A name for one write, for its row. */
  newWrite(): string {
    return `${this.options.owner}.${++this.#writeCount}`;
  }

  /**
   * Writes the row if the stored row has the sequence `expected`; 0: no row is stored. Without an acknowledgement it is tried again. Rejects
   * if the result is not known in time, or if the store has another id than `storeId`.
   */
  write(bucket: Bucket, key: string, row: StoredRow, expected: number, storeId: string): Promise<Written> {
    const { clock } = this.options;
    const startedAtMs = expected === 0 ? clock.date().getTime() : 0;
    const once = () => {
      // Wall time, because the machine may have slept meanwhile: the row of an earlier copy of the call may be removed by now.
      if (expected === 0 && clock.date().getTime() - startedAtMs > createMs) throw storeError(undefined);
      return this.writeOnce(bucket, key, row, expected, storeId);
    };
    return this.until(clock.nowMs() + writeMs, once, isHostError);
  }

  /** Calls `run` once the id of the store is checked. Repeats it until `untilMs` if the server does not answer or its id changes. */
  async until<T>(untilMs: number, run: () => Promise<T>, isFinal = isFinalError): Promise<T> {
    const { clock, connection } = this.options;
    for (;;) {
      try {
        if (this.id.checking !== undefined) await this.checked(untilMs);
        return await run();
      } catch (error) {
        const isOver = this.#isClosed || connection.isClosed() || clock.nowMs() >= untilMs;
        if (isFinal(error) || isOver) throw isHostError(error) ? error : storeError(error);
      }
      await sleep(clock, retryMs);
    }
  }

  /** Resolves when the id of the store is checked. Rejects if that is not done at this time. */
  async checked(untilMs = this.options.clock.nowMs() + writeMs): Promise<void> {
    const { checking } = this.id;
    if (!checking) return;
    await new Promise<void>((resolve, reject) => {
      const cancel = this.options.clock.at(untilMs, () => reject(storeError(undefined)));
      void checking.then(() => {
        cancel();
        resolve();
      });
    });
  }

  /** Operations that wait for the server reject. */
  close(): void {
    this.#isClosed = true;
  }

  /** Like `write`. A result that is not known is read back, and rejects if that fails too. */
  async writeOnce(bucket: Bucket, key: string, row: StoredRow, expected: number, storeId: string): Promise<Written> {
    const { id } = this;
    id.require(storeId);
    const { losses } = id;
    let seq: number;
    try {
      seq = await this.writes.put(subjectOf(bucket, key), writeRow(row), expected);
    } catch (error) {
      const code = codeOf(error);
      if (noRoom.includes(code)) return 'full';
      if (code === noStream) await this.#createAgain();
      const there = await this.read(bucket, key).catch(() => 'unknown' as const);
      if (there !== 'unknown' && there?.row.write === row.write) return there.seq;
      if (wrongSequence.includes(code) && there !== 'unknown') return 'conflict';
      throw error;
    }
    if (id.sawWrite(bucket, seq) && losses === id.losses) return seq;
    // The write may have reached another store than `storeId`.
    id.check();
    await this.checked();
    if (id.id !== storeId) await this.remove(streamOf(bucket), seq).catch(() => {});
    id.require(storeId);
    return seq;
  }

  async read(bucket: Bucket, key: string): Promise<FoundRow | undefined> {
    await this.checked();
    const found = await lastOf(this.jsm, bucket, key).catch(unlessMissing);
    return found && { bucket, row: readRow(found.value), seq: found.seq };
  }

  /** Like `remove`, for many rows: without an answer within a second it rejects. */
  removeRow(bucket: Bucket, seq: number): Promise<unknown> {
    return this.writes.remove(streamOf(bucket), seq);
  }

  /** A message that does not exist counts as removed. */
  async remove(stream: string, seq: number): Promise<void> {
    await this.jsm.streams.deleteMessage(stream, seq, false).catch(unlessMissing);
  }

  /** Undefined: there is no room. */
  async addBody(key: string, bytes: Buffer, write: string): Promise<number | undefined> {
    await this.checked();
    try {
      return (await this.jsm.jetstream().publish(bodySubject(key), bytes, { msgID: write, timeout: bodyMs })).seq;
    } catch (error) {
      if (noRoom.includes(codeOf(error))) return undefined;
      if (isNoResponders((error as Error).cause ?? error)) await this.#createAgain();
      throw storeError(error);
    }
  }

  /** Undefined: it was removed. If the stream was deleted and made again, its sequence may be that of a reply to another call. */
  async readBody({ body, write }: Pick<StoredRow, 'body' | 'write'>): Promise<Buffer | undefined> {
    if (!body) return undefined;
    const message = await this.jsm.direct.getMessage(bodiesStream, { seq: body.seq }).catch(unlessMissing);
    return message?.header.get(writeHeader) === write ? bufferOf(message.data) : undefined;
  }

  /** By the key of its row: its sequence may be that of a reply to another call. */
  async removeBody(key: string): Promise<void> {
    await this.jsm.streams.purge(bodiesStream, { filter: bodySubject(key) }).catch(unlessMissing);
  }

  /** Keys of the rows whose keys begin with these tokens. */
  async keysBelow(bucket: Bucket, filter: string): Promise<string[]> {
    await this.id.checking;
    const prefix = subjectOf(bucket, '');
    const options = { subjects_filter: `${prefix}${filter}.>` };
    const { state } = await this.jsm.streams.info(streamOf(bucket), options);
    return Object.keys(state.subjects ?? {}).map((subject) => subject.slice(prefix.length));
  }

  async used(stream: string): Promise<StoreUse> {
    const info: StreamInfo & { readonly ts?: string } = await this.jsm.streams.info(stream);
    const { state, config, ts } = info;
    // All times are of the server. Before 2.10 it does not tell its time; the time of the last entry, which is used then, is earlier.
    const ageMs = Date.parse(ts ?? state.last_ts) - Date.parse(state.first_ts);
    return { bytes: state.bytes, rows: state.messages, firstExpiryMs: config.max_age / 1e6 - ageMs };
  }

  /** For a stream that was deleted, or has no leader. Callers share one attempt. The check of the id shows whether rows are lost. */
  #createAgain(): Promise<void> {
    this.#creating ??= createStores(this.jsm, this.options.replicas)
      .catch(() => {})
      .finally(() => {
        this.#creating = undefined;
        this.id.check();
      });
    return this.#creating;
  }
}

const subjectOf = (bucket: Bucket, key: string): string => `$KV.${bucket}.${key}`;

/** Read at the leader: a direct read may be answered by a follower that is behind. */
async function lastOf(jsm: JetStreamManager, bucket: Bucket, key: string) {
  const found = await jsm.streams.getMessage(streamOf(bucket), { last_by_subj: subjectOf(bucket, key) });
  return found ? { value: bufferOf(found.data), seq: found.seq } : undefined;
}

function unlessMissing(error: unknown): undefined {
  if (!notFound.includes(codeOf(error)) && !/not found|no message|sequence/i.test(String(error)))
    throw storeError(error);
}

const isFinalError = (error: unknown): boolean => isHostError(error) && error.code !== 'transport';

const storeError = (cause: unknown): HostError =>
  new HostError('transport', 'the store on the NATS server did not answer as expected', {
    ...{ execution: 'uncertain', cause, hint: 'look at the log of nats-server' },
  });

const expectedSequence = 'Nats-Expected-Last-Subject-Sequence';

/**
 * Writes and removes rows, and matches the answers. The clients of JetStream do the same, but make a timer, an error object and six promises
 * for each row, which took a tenth of the time of a busy host.
 *
 * Invariant: every write ends with an acknowledgement, an error of the server, a lost connection, or a timeout of one second.
 */
class RowWrites {
  /** By the last token of the reply subject. */
  readonly #pending: PendingAnswers<number>;
  readonly #inbox: string;
  /** Headers are encoded when a message is sent, so all writes share them. Those of new rows never change: setting one costs 2 KB. */
  readonly #headers: Readonly<Record<'new' | 'changed', MsgHdrs>>;
  #count = 0;

  constructor(
    private readonly parts: Pick<KvStoreOptions, 'connection' | 'clock' | 'batch'>,
    { headers, createInbox }: Awaited<ReturnType<typeof loadNats>>,
  ) {
    this.#pending = new PendingAnswers(parts.clock, acknowledgedMs, () => new Error('no acknowledgement came'));
    this.#headers = { new: headers(), changed: headers() };
    this.#headers.new.set(expectedSequence, '0');
    this.#inbox = `${createInbox()}.`;
    parts.connection.subscribe(`${this.#inbox}*`, {
      callback: (error, { subject, data }) => {
        if (!error) this.#answered(subject.slice(this.#inbox.length), bufferOf(data));
      },
    });
  }

  /** Resolves with the sequence. `code` of an error is that of JetStream. */
  put(subject: string, value: Uint8Array, previousSeq: number): Promise<number> {
    return this.#send(subject, value, () => {
      if (previousSeq === 0) return { headers: this.#headers.new };
      this.#headers.changed.set(expectedSequence, String(previousSeq));
      return { headers: this.#headers.changed };
    });
  }

  /** Resolves when it is removed. */
  remove(stream: string, seq: number): Promise<number> {
    return this.#send(`$JS.API.STREAM.MSG.DELETE.${stream}`, Buffer.from(`{"seq":${seq},"no_erase":true}`), () => ({}));
  }

  #send(subject: string, value: Uint8Array, headers: () => { headers?: MsgHdrs }): Promise<number> {
    const id = String(++this.#count);
    this.parts.batch.add(() => {
      try {
        this.parts.connection.publish(subject, value, { ...headers(), reply: this.#inbox + id });
      } catch (error) {
        this.#pending.reject(id, error as Error);
      }
    });
    return this.#pending.wait(id);
  }

  /** The connection is lost, so no answer will come. */
  fail(): void {
    this.#pending.rejectAll(new Error('the connection was lost'));
  }

  #answered(id: string, bytes: Buffer): void {
    try {
      // An empty answer: nothing listens, so there is no stream.
      const answer = bytes.length === 0 ? `{"error":{"err_code":${noStream}}}` : bytes.toString();
      const { seq = 0, error } = JSON.parse(answer) as { seq?: number; error?: { err_code: number } };
      if (!error) return this.#pending.resolve(id, seq);
      this.#pending.reject(id, Object.assign(new Error('the write was refused'), { code: error?.err_code }));
    } catch (error) {
      this.#pending.reject(id, error as Error);
    }
  }
}
