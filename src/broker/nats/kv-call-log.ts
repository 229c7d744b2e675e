/**
 * The log of calls on NATS, shared by several hosts: a row per call in a KV bucket, large replies in a stream of their own.
 * Not here: lost answers of the server and the id of the store (kv-store.ts), bounds (known-calls.ts).
 *
 * Invariants: every change of a row names the version that it replaces. A row whose reply was acknowledged stays, without the reply, until a
 * minute after the deadline: a late copy of the request must find it. A row without an outcome and with another store id becomes `uncertain`
 * when it is read: the store is an older copy, and the call may have run since.
 */
import type { LogUsage } from '../../host/broker-status.js';
import { type Cancel, type Clock, sleep } from '../../kernel/clock.js';
import { HostError, notExecuted } from '../../kernel/errors.js';
import { noRoom, notKept } from '../calls/call-bounds.js';
import type { CallId, CallLog, CallOutcome, CallRow, NewCall, Received } from '../calls/call-log.js';
import { hasOutcome } from '../calls/call-log.js';
import { brokerLimits } from '../protocol/limits.js';
import { errorBody } from '../protocol/reply-body.js';
import { storeBytes } from './create-stores.js';
import { type KnownCall, KnownCalls } from './known-calls.js';
import { type FoundRow, type KvStore, type StoredRow, type StoreUse, writeMs } from './kv-store.js';
import { type Bucket, bodiesStream, callsBucket, keysBucket, rowKey, streamOf, token } from './names.js';

export interface KvCallLogOptions {
  readonly store: KvStore;
  readonly owner: string;
  readonly clock: Clock;
  readonly isGone: (owner: string) => Promise<boolean>;
  readonly onProblem: (error: unknown) => void;
}

/** What `finish` writes. It becomes an error if there is no room. `body`: where a large reply is. */
type Ending = Pick<CallOutcome, 'state' | 'reply'> & Pick<StoredRow, 'write' | 'body'>;

/** Larger replies are in the stream of bodies: a bucket does not give back the room of large rows soon. */
const inlineBytes = 64 * 1024;
/** A smaller reply stays in its row when it was acknowledged; removing it would cost one more write for each call. */
const staysBytes = 512;
const usedMs = 2_000;
const retryMs = 250;
/** Room for the outcomes of calls that run when the bucket of calls is full. */
const reservedBytes = 16 * 1024 * 1024;
/** Above this no new call is accepted: the rest is for replies of calls that run. One worker has at most 64 MiB at each host. */
const bodyBytesMax = storeBytes - 3 * reservedBytes;
/** If the store gave room back this recently, it is expected to do so again soon; if not, only when its oldest entry expires. */
const freedMs = 5_000;
const soonMs = 1_000;
const removalsAtOnce = 32;
const removalStepMs = 1_000;
/** For this long another host may have a copy of the request. */
const afterDeadlineMs = 60_000;

export class KvCallLog implements CallLog {
  readonly owner: string;
  readonly #store: KvStore;
  readonly #clock: Clock;
  readonly #known: KnownCalls;
  /**
   * Sequences of rows by their bucket and the second in which they are removed. A busy host has hundreds of thousands of acknowledged rows
   * whose deadline has not passed. If the host ends earlier, the age limit of the bucket removes the rows.
   */
  readonly #removals = new Map<string, { readonly sequences: number[]; readonly cancel: Cancel }>();
  readonly #used: Record<StoreName, Used> = { calls: unused, keys: unused, bodies: unused };
  #usedAtMs = Number.NEGATIVE_INFINITY;
  #isClosed = false;

  constructor(private readonly options: KvCallLogOptions) {
    this.owner = options.owner;
    this.#store = options.store;
    this.#clock = options.clock;
    this.#known = new KnownCalls(options.clock, (known) => this.#expired(known));
    this.#measure();
  }

  get storeId(): string {
    return this.#store.id.id;
  }

  refusal(worker: string, isCallersKey: boolean): HostError | undefined {
    this.#measure();
    const { calls, keys, bodies } = this.#used;
    if (isCallersKey && (keys.rows >= brokerLimits.callersKeys || keys.bytes >= brokerLimits.callersKeyBytes))
      return this.#full('keys');
    if (!isCallersKey && calls.bytes > storeBytes - reservedBytes) return this.#full('calls');
    if (!isCallersKey && bodies.bytes > bodyBytesMax) return this.#full('bodies');
    return this.#known.bounds.refusal(worker, isCallersKey);
  }

  async receive({ id, digest, state, reply, isCallersKey, deadlineMs }: NewCall): Promise<Received> {
    const { storeId, owner } = this;
    const key = keyOf(id);
    const bucket = isCallersKey ? keysBucket : callsBucket;
    const before = this.#known.get(key);
    // This host wrote the row, and the store does not have it any more: it was lost, and the call may have run.
    const isLost = before !== undefined && before.seq > 0;
    const attempts = isLost || state === 'running' ? 1 : 0;
    const write = this.#store.newWrite();
    const [first, inline] = isLost ? (['running', undefined] as const) : ([state, reply] as const);
    const row = { state: first, owner, digest, attempts, storeId, write, isPurged: false, body: undefined, inline };
    const known = before ?? this.#known.add(id, bucket, deadlineMs);
    let found: FoundRow | undefined;
    try {
      while (!found) {
        const written = await this.#store.write(bucket, key, row, 0, storeId);
        if (written === 'full') throw this.#full(isCallersKey ? 'keys' : 'calls');
        if (written !== 'conflict' && !isLost) {
          this.#known.stored(known, row, written);
          return { isNew: true, row: visible(row, written, reply) };
        }
        found = written === 'conflict' ? await this.#read(bucket, key) : { bucket, row, seq: written };
      }
    } finally {
      if (known !== before && known.seq === 0) this.#known.forget(known);
    }
    return { isNew: false, row: await this.#withReply(id, found) };
  }

  async begin(id: CallId, version: number): Promise<'begun' | CallRow | undefined> {
    const { storeId, owner } = this;
    const key = keyOf(id);
    const known = this.#known.get(key);
    const found = (known?.seq === version ? openRow(known) : undefined) ?? (await this.#locate(key));
    if (!found || isRemoved(found)) return undefined;
    const { bucket, row: before, seq } = found;
    if (seq !== version || hasOutcome(before)) return this.#withReply(id, found);
    const [attempts, write] = [before.attempts + 1, this.#store.newWrite()];
    const row: StoredRow = { ...before, state: 'running', owner, storeId, attempts, write };
    const written = await this.#store.write(bucket, key, row, version, storeId);
    if (written === 'full') throw this.#full('calls');
    if (written === 'conflict') {
      if (known?.seq === version) known.row = undefined;
      return this.find(id);
    }
    this.#known.stored(known ?? this.#known.add(id, bucket, brokerLimits.deadlineMs), row, written);
    return 'begun';
  }

  async finish(id: CallId, owner: string, outcome: CallOutcome): Promise<CallRow | undefined> {
    const { isCallersKey, state, reply } = outcome;
    const startedAtMs = this.#clock.nowMs();
    const deadlineAtMs = startedAtMs + outcome.deadlineMs;
    const giveUpAtMs = Math.max(deadlineAtMs, startedAtMs + writeMs);
    let ending: Ending = { state, reply, write: this.#store.newWrite(), body: undefined };
    const once = async (): Promise<CallRow | undefined | 'full' | 'changed'> => {
      const key = keyOf(id);
      const known = this.#known.get(key);
      const found = openRow(known) ?? (await this.#locate(key));
      if (!found) return undefined;
      const { bucket, row: before, seq } = found;
      if (hasOutcome(before) || before.owner !== owner) return this.#withReply(id, found);
      const hasRoom = !known || this.#known.bounds.hasRoom(known.worker, ending.reply.length, bucket === keysBucket);
      if (isCallersKey && !hasRoom) ending = isNotKept(ending, reply);
      const { length } = ending.reply;
      const isLarge = length > inlineBytes && bucket === callsBucket && !before.isPurged;
      if (isLarge && !ending.body) {
        const bodySeq = hasRoom ? await this.#store.addBody(key, ending.reply, ending.write) : undefined;
        if (bodySeq === undefined) return 'full';
        ending = { ...ending, body: { seq: bodySeq, length } };
      }
      const { body, write } = ending;
      const [{ storeId }, inline] = [this, body || before.isPurged ? undefined : ending.reply];
      const row: StoredRow = { ...before, state: ending.state, storeId, write, body, inline };
      const written = await this.#store.writeOnce(bucket, key, row, seq, storeId);
      if (written === 'full') return 'full';
      if (written === 'conflict') {
        // Another host changed the row. The next round reads it.
        if (known?.seq === seq) known.row = undefined;
        return 'changed';
      }
      if (known) this.#known.stored(known, row, written);
      else this.#adopt(id, { bucket, row, seq: written });
      return visible(row, written, before.isPurged ? undefined : isCallersKey ? reply : ending.reply);
    };
    for (;;) {
      const ended = await this.#store.until(giveUpAtMs, once);
      if (ended === 'changed') continue;
      if (ended !== 'full') return ended;
      if (this.#isClosed) throw noRoomFor('the outcome of a call', retryMs);
      const { length } = ending.reply;
      if (isCallersKey && ending.reply === reply) ending = isNotKept(ending, reply);
      else if (this.#clock.nowMs() < deadlineAtMs && !isCallersKey) await this.#room(id, length);
      else if (ending.state === 'uncertain') throw noRoomFor('the outcome of a call', retryMs);
      else ending = { ...ending, state: 'uncertain', reply: errorBody(noRoom(length)), body: undefined };
    }
  }

  async find(id: CallId): Promise<CallRow | undefined> {
    const found = await this.#locate(keyOf(id));
    return found && !isRemoved(found) ? this.#withReply(id, found) : undefined;
  }

  acknowledge(id: CallId): void {
    const known = this.#known.acknowledge(keyOf(id));
    if (!known?.row || known.row.storeId !== this.storeId) return;
    const removed = (seq: number) => this.#removeAt(known.deadlineAtMs + afterDeadlineMs, known.bucket, seq);
    if (known.replyBytes <= staysBytes) removed(known.seq);
    else this.#dropReply(known, known.row).then(removed, this.options.onProblem);
  }

  async purge(worker: string, except: readonly string[] = []): Promise<void> {
    const kept = new Set(except.map(token));
    for (const bucket of [callsBucket, keysBucket] as const)
      for (const key of await this.#store.keysBelow(bucket, token(worker)))
        if (!kept.has(key.split('.')[1] ?? '')) await this.#purgeRow(bucket, key);
  }

  async isGone(owner: string): Promise<boolean> {
    return owner !== this.owner && this.options.isGone(owner);
  }

  usage(): LogUsage {
    this.#measure();
    const usage = this.#known.bounds.usage();
    return { ...usage, callersKeys: Math.max(usage.callersKeys, this.#used.keys.rows) };
  }

  close(): Promise<void> {
    this.#isClosed = true;
    this.#store.close();
    this.#known.close();
    for (const { cancel } of this.#removals.values()) cancel();
    this.#removals.clear();
    return Promise.resolve();
  }

  /** Finds the row in either bucket: the key does not tell whether a caller chose it. */
  async #locate(key: string): Promise<FoundRow | undefined> {
    const bucket = this.#known.get(key)?.bucket ?? callsBucket;
    const found = await this.#read(bucket, key);
    return found ?? (bucket === callsBucket ? this.#read(keysBucket, key) : undefined);
  }

  async #read(bucket: Bucket, key: string): Promise<FoundRow | undefined> {
    for (;;) {
      const found = await this.#store.read(bucket, key);
      if (!found || hasOutcome(found.row) || found.row.storeId === this.storeId) return found;
      // Another host may have written a new id that this host has not read yet.
      this.#store.id.check();
      await this.#store.checked();
      const { storeId } = this;
      if (found.row.storeId === storeId) return found;
      const [write, inline] = [this.#store.newWrite(), errorBody(olderStore())];
      const row: StoredRow = { ...found.row, state: 'uncertain', storeId, write, inline };
      const written = await this.#store.write(bucket, key, row, found.seq, storeId);
      if (written === 'full') throw noRoomFor('the outcome of a call', retryMs);
      if (written !== 'conflict') return { bucket, row, seq: written };
    }
  }

  /** Adds the reply to the row. A large reply is read from the stream of bodies. */
  async #withReply(id: CallId, found: FoundRow): Promise<CallRow> {
    const { row, seq } = found;
    const reply = row.inline ?? (await this.#store.readBody(row));
    if (reply && row.owner !== this.owner) this.#adopt(id, found);
    return visible(row, seq, reply);
  }

  /** The worker acknowledges at this host an outcome that this host has read, or has written in place of another host. */
  #adopt(id: CallId, { bucket, row, seq }: FoundRow): void {
    if (bucket !== callsBucket || !hasOutcome(row) || !(row.inline || row.body)) return;
    // The present store has an older row too.
    this.#known.adopt(id, { bucket, row: { ...row, storeId: this.storeId }, seq });
  }

  /** Waits for room for a reply of this size, at most for `retryMs`. */
  #room(id: CallId, bytes: number): Promise<void> {
    const known = this.#known.get(keyOf(id));
    if (!known) return sleep(this.#clock, retryMs);
    return this.#known.bounds.room(known.worker, bytes, this.#clock.nowMs() + retryMs);
  }

  /** Returns the sequence of the row. */
  async #dropReply({ rowKey: key, bucket, seq }: KnownCall, row: StoredRow): Promise<number> {
    if (row.body) {
      await this.#store.removeBody(key);
      return seq;
    }
    const bare: StoredRow = { ...row, write: this.#store.newWrite(), inline: undefined };
    const written = await this.#store.write(bucket, key, bare, seq, this.storeId);
    return typeof written === 'number' ? written : seq;
  }

  /**
   * The row stays, without a reply: a host that does not know yet that the worker was revoked must not take a late copy of the request
   * for a new call.
   */
  async #purgeRow(bucket: Bucket, key: string): Promise<void> {
    for (;;) {
      const { storeId } = this;
      const found = await this.#store.read(bucket, key);
      if (!found || found.row.isPurged) return;
      const { row, seq } = found;
      const state = row.state === 'received' ? 'refused' : row.state;
      const bare = { isPurged: true, body: undefined, inline: undefined, write: this.#store.newWrite() };
      const written = await this.#store.write(bucket, key, { ...row, ...bare, state }, seq, storeId);
      if (written === 'conflict') continue;
      if (row.body) await this.#store.removeBody(key);
      const known = this.#known.get(key);
      if (known && state !== 'running') this.#known.forget(known);
      else if (known) known.row = undefined;
      return;
    }
  }

  #expired({ rowKey: key, bucket, seq, row }: KnownCall): void {
    if (row?.storeId !== this.storeId) return;
    if (row.body) this.#store.removeBody(key).catch(() => {});
    this.#removeAt(this.#clock.nowMs(), bucket, seq);
  }

  /** For a row of the present store. In another store the sequence would be that of another row. */
  #removeAt(atMs: number, bucket: Bucket, seq: number): void {
    if (this.#isClosed) return;
    const { storeId } = this;
    const step = Math.ceil(atMs / removalStepMs);
    const due = `${storeId} ${bucket} ${step}`;
    const sequences = this.#removals.get(due)?.sequences;
    if (sequences) return void sequences.push(seq);
    const cancel = this.#clock.at(step * removalStepMs, () => void this.#removeRows(storeId, bucket, due));
    this.#removals.set(due, { sequences: [seq], cancel });
  }

  /** Rows that cannot be removed now are removed by the age limit of the bucket. */
  async #removeRows(storeId: string, bucket: Bucket, due: string): Promise<void> {
    const { sequences = [] } = this.#removals.get(due) ?? {};
    this.#removals.delete(due);
    for (let at = 0; at < sequences.length && !this.#isClosed; at += removalsAtOnce) {
      await this.#store.checked().catch(() => {});
      if (this.#store.id.checking || this.storeId !== storeId) return;
      const some = sequences.slice(at, at + removalsAtOnce);
      await Promise.allSettled(some.map((seq) => this.#store.removeRow(bucket, seq)));
    }
  }

  /** Asks for the sizes, at most every two seconds and only while the log is used. */
  #measure(): void {
    const nowMs = this.#clock.nowMs();
    if (nowMs - this.#usedAtMs < usedMs || this.#isClosed) return;
    this.#usedAtMs = nowMs;
    const look = async (name: StoreName) => {
      const use = await this.#store.used(streams[name]);
      const { bytes, freedAtMs } = this.#used[name];
      this.#used[name] = { ...use, freedAtMs: use.bytes < bytes ? nowMs : freedAtMs };
    };
    // Without an answer the last sizes are used. The server refuses what does not fit.
    void Promise.allSettled([look('calls'), look('keys'), look('bodies')]);
  }

  #full(name: StoreName): HostError {
    const { firstExpiryMs, freedAtMs } = this.#used[name];
    const nowMs = this.#clock.nowMs();
    const isFreed = nowMs - freedAtMs < freedMs;
    return noRoomFor(contents[name], isFreed ? soonMs : Math.max(soonMs, firstExpiryMs - (nowMs - this.#usedAtMs)));
  }
}

const streams = { calls: streamOf(callsBucket), keys: streamOf(keysBucket), bodies: bodiesStream };
const contents = { calls: 'calls', keys: 'keys that callers chose', bodies: 'replies of calls' };
type StoreName = keyof typeof streams;
type Used = StoreUse & { readonly freedAtMs: number };
const unused = { bytes: 0, rows: 0, firstExpiryMs: 0, freedAtMs: Number.NEGATIVE_INFINITY };

const keyOf = ({ worker, epoch, key }: CallId): string => rowKey(worker, epoch, key);
/** The row of a revoked worker, which is kept for late copies of its request only. */
const isRemoved = ({ row }: FoundRow): boolean => row.isPurged && hasOutcome(row);

/** The row of an open call of this host, which need not be read. A row with a reply is read, because replies are not in memory. */
const openRow = (known: KnownCall | undefined): FoundRow | undefined =>
  known?.row && !hasOutcome(known.row) ? { bucket: known.bucket, row: known.row, seq: known.seq } : undefined;

const visible = (
  { state, owner, digest, attempts }: StoredRow,
  version: number,
  reply: Buffer | undefined,
): CallRow => ({ state, owner, digest, attempts, version, reply });

const isNotKept = (ending: Ending, reply: Buffer): Ending =>
  ending.reply === reply ? { ...ending, reply: errorBody(notKept(reply.length)) } : ending;

const noRoomFor = (what: string, retryAfterMs: number): HostError => {
  const facts = { reason: 'bucket_full', retryAfterMs };
  const hint = 'room comes back as earlier calls expire';
  return notExecuted('insufficient_storage', `the NATS server has no room for ${what}`, hint, facts);
};

const olderStore = (): HostError =>
  new HostError('outcome_uncertain', 'the call may have run: the NATS server has an older copy of its store', {
    ...{ execution: 'uncertain', reason: 'older_store', hint: 'look at its effect before sending it again' },
  });
