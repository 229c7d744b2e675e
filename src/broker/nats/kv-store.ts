/**
 * Rows and reply bodies on a NATS server. A row is one line of JSON, and after it the bytes of the reply if there is one. It says which
 * write made it, so that a host can tell later whether a write without an answer was made.
 * Not here: the id of the store (store-id.ts).
 *
 * Invariants: a write resolves when the server acknowledged it, or when the row that is read back names it. A write that is meant for
 * one store id is not made in a store with another id.
 */
import { sleep } from '../../kernel/clock.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import { joinedParts } from '../../wire/json-edit.js';
import { type CallState, callStates } from '../calls/call-log.js';
import { type Bucket, bodiesStream, bodySubject, streamOf, subjectOf } from './names.js';
import { bufferOf, codeOf, type HostParts, isNoResponders, noStream, wrongSequence } from './nats-client.js';
import { StoreId } from './store-id.js';
import { StoreSizes } from './store-sizes.js';
import { isMissing, Streams } from './streams.js';

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

/** The sequence of the row; `conflict`: another version of the row is stored, or the row names another store id than that of the store. */
export type Written = number | 'conflict';

export interface FoundRow {
  readonly bucket: Bucket;
  readonly row: StoredRow;
  readonly seq: number;
}

/** Time for the answer to a body of 4 MiB. */
const bodyMs = 6_000;
const retryMs = 100;
/** A write whose result is not known after this time is given up. */
export const writeMs = 10_000;
/** A new row is not created later than this after the first try. */
const createMs = 20_000;
/** In a message of the stream of bodies: the write that made it. */
const writeHeader = 'Nats-Msg-Id';
const noRoom = [10077, 10047, 10023];

export class KvStore {
  #writeCount = 0;
  #isClosed = false;
  readonly sizes: StoreSizes;

  private constructor(
    readonly parts: HostParts,
    private readonly streams: Streams,
    readonly id: StoreId,
  ) {
    this.sizes = new StoreSizes(parts.clock, (stream) => streams.jsm.streams.info(stream));
  }

  static async open(parts: HostParts): Promise<KvStore> {
    const streams = await Streams.open(parts);
    return new KvStore(parts, streams, await StoreId.open(parts, streams));
  }

  #writeUntilMs(): number {
    return this.parts.clock.nowMs() + writeMs;
  }

  /** A name for one write, for its row. */
  newWrite(): string {
    return `${this.parts.owner}.${++this.#writeCount}`;
  }

  /**
   * Writes the row if the stored row has the sequence `expected`; 0: no row is stored. Without an acknowledgement it is tried again. Rejects
   * if the result is not known in time, and with `bucket_full`.
   */
  write(
    bucket: Bucket,
    key: string,
    row: StoredRow,
    expected: number,
    untilMs = this.#writeUntilMs(),
  ): Promise<Written> {
    const { clock } = this.parts;
    const startedAtMs = expected === 0 ? clock.date().getTime() : 0;
    return this.until(untilMs, () => {
      // Wall time, because the machine may have slept meanwhile: the row of an earlier copy of the call may be removed by now.
      if (expected === 0 && clock.date().getTime() - startedAtMs > createMs) throw storeError();
      return this.#writeOnce(bucket, key, row, expected);
    });
  }

  /** Calls `run` once the id of the store is checked. Repeats it until `untilMs` if the server does not answer or its id changes. */
  async until<T>(untilMs: number, run: () => Promise<T>): Promise<T> {
    const { clock, connection } = this.parts;
    for (;;) {
      try {
        if (this.id.checking !== undefined) await this.checked(untilMs);
        return await run();
      } catch (error) {
        const isOver = this.#isClosed || connection.isClosed() || clock.nowMs() >= untilMs;
        if (!isHostError(error) && isOver) throw storeError(error);
        if (isHostError(error) && (isOver || error.code !== 'transport')) throw error;
      }
      await sleep(clock, retryMs);
    }
  }

  /** Resolves when the id of the store is checked. Rejects if that is not done at this time. */
  async checked(untilMs = this.#writeUntilMs()): Promise<void> {
    const { clock } = this.parts;
    while (this.id.checking !== undefined) {
      if (clock.nowMs() >= untilMs) throw storeError();
      await Promise.race([this.id.checking, sleep(clock, retryMs)]);
    }
  }

  /** Operations that wait for the server reject. */
  close(): void {
    this.#isClosed = true;
  }

  /** If the result is not known, the row is read back. Rejects if that fails too. */
  async #writeOnce(bucket: Bucket, key: string, row: StoredRow, expected: number): Promise<Written> {
    const { id } = this;
    const { losses } = id;
    if (id.id !== row.storeId) return 'conflict';
    let seq: number;
    try {
      seq = await this.streams.put(subjectOf(bucket, key), writeRow(row), expected);
    } catch (error) {
      const code = codeOf(error);
      if (noRoom.includes(code)) throw this.sizes.full(streamOf(bucket));
      // The check makes the stream again, and shows whether rows are lost.
      if (code === noStream) id.check();
      const there = await this.read(bucket, key).catch(() => 'unknown' as const);
      if (there !== 'unknown' && there?.row.write === row.write) return there.seq;
      if (wrongSequence.includes(code) && there !== 'unknown') return 'conflict';
      throw error;
    }
    if (id.sawWrite(bucket, seq) && losses === id.losses) return seq;
    // The write may have reached another store.
    id.check();
    await this.checked();
    if (id.id === row.storeId) return seq;
    await this.removeRow(bucket, seq).catch(() => {});
    return 'conflict';
  }

  async read(bucket: Bucket, key: string): Promise<FoundRow | undefined> {
    await this.checked();
    const found = await this.streams.last(bucket, key).catch(unlessMissing);
    return found && { bucket, row: readRow(found.value), seq: found.seq };
  }

  removeRow(bucket: Bucket, seq: number): Promise<unknown> {
    return this.streams.remove(bucket, seq);
  }

  /** Resolves with the sequence. */
  async addBody(key: string, bytes: Buffer, write: string): Promise<number> {
    await this.checked();
    const options = { msgID: write, timeout: bodyMs };
    try {
      return (await this.streams.jsm.jetstream().publish(bodySubject(key), bytes, options)).seq;
    } catch (error) {
      if (noRoom.includes(codeOf(error))) throw this.sizes.full(bodiesStream);
      if (isNoResponders((error as Error).cause ?? error)) this.id.check();
      throw storeError(error);
    }
  }

  /** Undefined: the reply was removed. If the stream was deleted and made again, the sequence may be that of a reply to another call. */
  async readBody({ body, write }: Pick<StoredRow, 'body' | 'write'>): Promise<Buffer | undefined> {
    if (!body) return undefined;
    const message = await this.streams.jsm.direct.getMessage(bodiesStream, { seq: body.seq }).catch(unlessMissing);
    return message?.header.get(writeHeader) === write ? bufferOf(message.data) : undefined;
  }

  /**
   * By its sequence, because nats-server 2.9 does not give the room of purged messages back to the account: after purges of 1 GB in all,
   * it refuses every write. If the stream was deleted and made again, the sequence may be that of a reply to another call, but then the
   * stream has no message with the subject of this call.
   */
  async removeBody(key: string, { body }: Pick<StoredRow, 'body'>): Promise<void> {
    if (!body) return;
    const { streams } = this.streams.jsm;
    const found = await streams.info(bodiesStream, { subjects_filter: bodySubject(key) }).catch(unlessMissing);
    if (!found?.state.subjects?.[bodySubject(key)]) return;
    await streams.deleteMessage(bodiesStream, body.seq, false).catch(unlessMissing);
  }

  /** Keys of the rows whose keys begin with these tokens. */
  async keysBelow(bucket: Bucket, filter: string): Promise<string[]> {
    await this.id.checking;
    const prefix = subjectOf(bucket, '');
    const options = { subjects_filter: `${prefix}${filter}.>` };
    const { state } = await this.streams.jsm.streams.info(streamOf(bucket), options);
    return Object.keys(state.subjects ?? {}).map((subject) => subject.slice(prefix.length));
  }
}

function unlessMissing(error: unknown): undefined {
  if (!isMissing(error) && !/not found|no message|sequence/i.test(String(error))) throw storeError(error);
}

const storeError = (cause?: unknown): HostError =>
  new HostError('transport', 'the store on the NATS server did not answer as expected', {
    ...{ execution: 'uncertain', cause, hint: 'look at the log of nats-server' },
  });
