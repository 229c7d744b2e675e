/**
 * Rows and reply bodies on a NATS server, and the id of the store.
 *
 * Invariants: a write resolves when the server acknowledged it, or when the row that is read back names it. A store that lost
 * acknowledged writes (wiped, an older copy, a restored backup) gets another id before anything else is read or written: after each
 * reconnect, and when a sequence goes back, all operations wait until the id is checked.
 */
import { hash, randomBytes } from 'node:crypto';
import type { JetStreamClient, JetStreamManager, StreamInfo } from '@nats-io/jetstream';
import type { KV } from '@nats-io/kv';
import { type Clock, sleep } from '../../kernel/clock.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import { readRow, type StoredRow, writeRow } from './call-rows.js';
import { createStores } from './create-stores.js';
import { bodiesStream, bodySubject, callsBucket, keysBucket, storeKey, streamOf } from './names.js';
import { bufferOf, loadJetStream, loadKv, type NatsConnection, notExecuted } from './nats-client.js';
import type { TurnBatch } from './turn-batch.js';

export type Bucket = typeof callsBucket | typeof keysBucket;
export type Written =
  | { readonly kind: 'written'; readonly seq: number }
  | { readonly kind: 'conflict' }
  | { readonly kind: 'full' };
export interface VersionedRow {
  readonly row: StoredRow;
  readonly seq: number;
}

export interface KvStoreOptions {
  readonly connection: NatsConnection;
  readonly clock: Clock;
  readonly replicas: number;
  readonly owner: string;
  readonly onProblem: (error: unknown) => void;
  readonly batch: TurnBatch;
  /** Another host must look at the id of the store too. */
  readonly onNewStore: () => void;
}

/** A write or a read without an answer, e.g. after a change of the leader, is tried again after this time. */
const answerMs = 1_000;
/** The answer to a body of 4 MiB. */
const bodyMs = 6_000;
const retryMs = 100;
/** The row with the id must be younger than the age limit of its bucket. */
const refreshMs = 10 * 60_000;
/** Codes of the JetStream API. */
const wrongSequence = [10071, 10164];
const noRoom = [10077, 10047, 10023];
const notFound = [10037, 10059];

export class KvStore {
  readonly #options: KvStoreOptions;
  readonly #js: JetStreamClient;
  readonly #jsm: JetStreamManager;
  readonly #buckets: Readonly<Record<Bucket, KV>>;
  readonly #isClosed: () => boolean;
  #storeId = '';
  /** Known to hosts only, and new with each id: a worker cannot make up a sequence, and one of another id means nothing. */
  #secret = '';
  /** Highest sequence of the bucket of calls that this host, another host or a worker has seen. */
  #seen = 0;
  /** Counts lost connections: an acknowledgement may come from another store than the one that was asked. */
  #losses = 0;
  /** Counts reasons to check the id. A check that began before the newest reason is repeated. */
  #reasons = 0;
  #checking: Promise<void> | undefined;
  /** Rejects what waits for an answer: when the connection is lost, none comes. */
  readonly #waiting = new Set<(error: Error) => void>();
  #online: Promise<void> = Promise.resolve();
  #writes = 0;

  private constructor(options: KvStoreOptions, parts: Parts, isClosed: () => boolean) {
    this.#options = options;
    this.#isClosed = isClosed;
    ({ js: this.#js, jsm: this.#jsm, buckets: this.#buckets } = parts);
  }

  /** Makes buckets and stream where they are missing. Throws if they have other settings. */
  static async open(options: KvStoreOptions): Promise<KvStore> {
    const { connection, clock, replicas } = options;
    const { jetstream, jetstreamManager } = await loadJetStream();
    const { Kvm } = await loadKv();
    const settings = { timeout: answerMs };
    const jsm = await jetstreamManager(connection, settings);
    const js = jetstream(connection, settings);
    await createStores(jsm, replicas);
    const kvm = new Kvm(js);
    // Reads go to the leader: a direct read may be answered by a follower that is behind.
    const open = (bucket: string) => kvm.open(bucket, { allow_direct: false });
    const buckets = { [callsBucket]: await open(callsBucket), [keysBucket]: await open(keysBucket) } as Record<
      Bucket,
      KV
    >;
    const store = new KvStore(options, { js, jsm, buckets }, () => connection.isClosed());
    void store.#watchConnection(connection);
    await store.#check();
    const refresh = () =>
      clock.at(clock.nowMs() + refreshMs, () => {
        if (store.#isClosed()) return;
        void store.#refresh().catch(options.onProblem);
        refresh();
      });
    refresh();
    return store;
  }

  get storeId(): string {
    return this.#storeId;
  }

  /** The highest sequence that this host knows, for workers to keep. */
  get seenToken(): string {
    return this.#tokenOf(this.#seen);
  }

  /** Undefined: operations are served now. Otherwise it resolves when the id of the store was checked. */
  get checking(): Promise<void> | undefined {
    return this.#checking;
  }

  /** A worker has seen this sequence. Operations wait until the store is known to have it. */
  sawToken(token: string): void {
    const seq = Number(token.slice(0, token.indexOf('.')));
    if (seq > this.#seen && token === this.#tokenOf(seq)) this.checkStore(seq);
  }

  /** Looks at the id of the store before anything else. */
  checkStore(seq = 0): void {
    this.#seen = Math.max(this.#seen, seq);
    this.#reasons++;
    if (this.#isClosed()) return;
    this.#checking ??= this.#checkUntilDone().finally(() => {
      this.#checking = undefined;
    });
  }

  /** A name for one write, for its row. */
  newWrite(): string {
    return `${this.#options.owner}.${++this.#writes}`;
  }

  /**
   * Writes the row if the one that is there has the sequence `expected`; 0: none is there. A write without an answer is read back and
   * tried again until `untilMs`. Rejects if it is not known by then, or if the store has another id than `storeId`.
   */
  async write(bucket: Bucket, key: string, row: StoredRow, expected: number, limits: WriteLimits): Promise<Written> {
    const { clock } = this.#options;
    const value = writeRow(row);
    for (;;) {
      await this.#checking;
      this.#requireStore(limits.storeId);
      const losses = this.#losses;
      try {
        const options = { previousSeq: expected, timeout: answerMs };
        const seq = await this.#answer<number>((resolve, reject) =>
          this.#options.batch.add(() => this.#buckets[bucket].put(key, value, options).then(resolve, reject)),
        );
        const isInOrder = bucket !== callsBucket || seq > this.#seen;
        if (bucket === callsBucket && isInOrder) this.#seen = seq;
        if (isInOrder && losses === this.#losses) return { kind: 'written', seq };
        // Written, but maybe into another store than the one for which it was decided.
        this.checkStore();
        await this.#checking;
        if (this.#storeId === limits.storeId) return { kind: 'written', seq };
        await this.remove(bucket, seq).catch(() => {});
        this.#requireStore(limits.storeId);
      } catch (error) {
        if (isHostError(error)) throw error;
        const code = codeOf(error);
        if (noRoom.includes(code)) return { kind: 'full' };
        const there = await this.read(bucket, key).catch(() => 'unknown' as const);
        if (there !== 'unknown' && there?.row.write === row.write) return { kind: 'written', seq: there.seq };
        if (wrongSequence.includes(code) && there !== 'unknown') return { kind: 'conflict' };
        if (this.#isClosed() || clock.nowMs() >= limits.untilMs) throw unknownWrite(error);
        await sleep(clock, retryMs);
      }
    }
  }

  async read(bucket: Bucket, key: string): Promise<VersionedRow | undefined> {
    await this.#checking;
    const entry = await this.#buckets[bucket].get(key).catch((error) => {
      if (notFound.includes(codeOf(error))) return null;
      throw storeError(error);
    });
    if (entry === null || entry.operation !== 'PUT') return undefined;
    return { row: readRow(bufferOf(entry.value)), seq: entry.revision };
  }

  async remove(bucket: Bucket, seq: number): Promise<void> {
    await this.#delete(streamOf(bucket), seq);
  }

  /** Undefined: there is no room. */
  async addBody(key: string, bytes: Buffer, write: string): Promise<number | undefined> {
    await this.#checking;
    try {
      return (await this.#js.publish(bodySubject(key), bytes, { msgID: write, timeout: bodyMs })).seq;
    } catch (error) {
      if (noRoom.includes(codeOf(error))) return undefined;
      throw storeError(error);
    }
  }

  /** Undefined: it was removed. */
  async readBody(seq: number): Promise<Buffer | undefined> {
    try {
      const message = await this.#jsm.direct.getMessage(bodiesStream, { seq });
      return message?.data && bufferOf(message.data);
    } catch (error) {
      if (notFound.includes(codeOf(error)) || /not found/i.test(String(error))) return undefined;
      throw storeError(error);
    }
  }

  async removeBody(seq: number): Promise<void> {
    await this.#delete(bodiesStream, seq);
  }

  /** Keys of rows below these tokens. */
  async keysBelow(bucket: Bucket, filter: string): Promise<string[]> {
    await this.#checking;
    const prefix = `$KV.${bucket}.`;
    const info = await this.#jsm.streams.info(streamOf(bucket), { subjects_filter: `${prefix}${filter}.>` });
    return Object.keys(info.state.subjects ?? {}).map((subject) => subject.slice(prefix.length));
  }

  async usedBytes(): Promise<{
    readonly calls: number;
    readonly bodies: number;
    readonly keys: number;
    readonly keyCount: number;
  }> {
    const [calls, bodies, keys] = await Promise.all(
      [streamOf(callsBucket), bodiesStream, streamOf(keysBucket)].map((name) => this.#jsm.streams.info(name)),
    );
    const bytes = (info: StreamInfo | undefined) => info?.state.bytes ?? 0;
    return { calls: bytes(calls), bodies: bytes(bodies), keys: bytes(keys), keyCount: keys?.state.messages ?? 0 };
  }

  async #delete(stream: string, seq: number): Promise<void> {
    try {
      await this.#jsm.streams.deleteMessage(stream, seq, false);
    } catch (error) {
      if (!/not found|no message|sequence/i.test(String(error))) throw storeError(error);
    }
  }

  #answer<T>(ask: (resolve: (value: T) => void, reject: (error: Error) => void) => void): Promise<T> {
    return new Promise((resolve, reject) => {
      const fail = (error: Error) => {
        this.#waiting.delete(fail);
        reject(error);
      };
      this.#waiting.add(fail);
      ask((value) => {
        this.#waiting.delete(fail);
        resolve(value);
      }, fail);
    });
  }

  #tokenOf(seq: number): string {
    return `${seq}.${hash('sha256', `${this.#secret}.${seq}.${this.#secret}`, 'base64url')}`;
  }

  #requireStore(storeId: string): void {
    if (this.#storeId === storeId) return;
    throw new HostError('transport', 'the NATS server has another store than before', {
      ...{ ...notExecuted, reason: 'store_changed', hint: 'send the call again' },
    });
  }

  async #checkUntilDone(): Promise<void> {
    const { clock, onProblem } = this.#options;
    for (let failures = 0; !this.#isClosed(); failures++) {
      await this.#online;
      try {
        return await this.#answer((resolve, reject) => void this.#check().then(resolve, reject));
      } catch (error) {
        if (failures === 20) onProblem(storeError(error));
        await sleep(clock, retryMs);
      }
    }
  }

  /** Reads the id of the store. Writes a new one if there is none, or if the store lost a sequence that was seen. */
  async #check(): Promise<void> {
    const kv = this.#buckets[callsBucket];
    for (;;) {
      // Before the question: a sequence that is seen meanwhile may be younger than its answer.
      const [seen, reasons] = [this.#seen, this.#reasons];
      const { state } = await this.#infoOrCreate();
      const entry = await kv.get(storeKey);
      const isOlder = state.last_seq < seen;
      let [value, seq] = [entry?.string(), state.last_seq];
      if (value === undefined || isOlder) {
        value = `${randomBytes(12).toString('base64url')}.${randomBytes(18).toString('base64url')}`;
        try {
          seq = await kv.put(storeKey, value, { previousSeq: entry?.revision ?? 0, timeout: answerMs });
        } catch (error) {
          // Another host wrote one.
          if (wrongSequence.includes(codeOf(error))) continue;
          throw error;
        }
      }
      const [id = '', secret = ''] = value.split('.');
      const isNew = this.#storeId !== '' && this.#storeId !== id;
      [this.#storeId, this.#secret] = [id, secret];
      this.#seen = isOlder ? seq : Math.max(this.#seen, seq);
      if (isNew) this.#options.onNewStore();
      if (reasons === this.#reasons) return;
    }
  }

  async #infoOrCreate(): Promise<StreamInfo> {
    try {
      return await this.#jsm.streams.info(streamOf(callsBucket));
    } catch (error) {
      if (!notFound.includes(codeOf(error))) throw error;
      await createStores(this.#jsm, this.#options.replicas);
      return this.#jsm.streams.info(streamOf(callsBucket));
    }
  }

  async #refresh(): Promise<void> {
    const kv = this.#buckets[callsBucket];
    const entry = await kv.get(storeKey);
    if (entry?.string() !== `${this.#storeId}.${this.#secret}`) return this.checkStore();
    await kv.put(storeKey, entry.value, { previousSeq: entry.revision }).catch((error) => {
      if (!wrongSequence.includes(codeOf(error))) throw error;
    });
  }

  async #watchConnection(connection: NatsConnection): Promise<void> {
    let goOnline = () => {};
    for await (const { type } of connection.status()) {
      if (type === 'disconnect') {
        this.#online = new Promise((resolve) => {
          goOnline = resolve;
        });
        this.#losses++;
        this.checkStore();
        for (const reject of [...this.#waiting]) reject(new Error('the connection was lost'));
      } else if (type === 'reconnect') goOnline();
    }
    goOnline();
  }
}

interface Parts {
  readonly js: JetStreamClient;
  readonly jsm: JetStreamManager;
  readonly buckets: Readonly<Record<Bucket, KV>>;
}

export interface WriteLimits {
  readonly untilMs: number;
  /** The id under which the write was decided. */
  readonly storeId: string;
}

const codeOf = (error: unknown): number => {
  const { code } = error as { code?: unknown };
  return typeof code === 'number' ? code : 0;
};

const unknownWrite = (cause: unknown): HostError =>
  new HostError('transport', 'the NATS server did not acknowledge a write', { execution: 'uncertain', cause });

const storeError = (cause: unknown): HostError =>
  isHostError(cause)
    ? cause
    : new HostError('transport', 'the store on the NATS server cannot be used', {
        ...{ execution: 'uncertain', cause, hint: 'look at the log of nats-server' },
      });
