/**
 * The log of calls on NATS, shared by several hosts: a row per call in a KV bucket, large replies in a stream of their own.
 * Not here: acknowledgements, lost answers and the id of the store (kv-store.ts), outcomes (shared-rows.ts), bounds (known-calls.ts).
 *
 * Invariants: every change of a row names the version that it replaces. A row whose reply was acknowledged stays, without the reply, until a
 * minute after the deadline: a late copy of the request must find it.
 */

import type { LogUsage } from '../../host/broker-status.js';
import type { Cancel, Clock } from '../../kernel/clock.js';
import type { HostError } from '../../kernel/errors.js';
import {
  type CallId,
  type CallLog,
  type CallOutcome,
  type CallRow,
  hasOutcome,
  type NewCall,
  type Received,
} from '../calls/call-log.js';
import { brokerLimits } from '../protocol/limits.js';
import { storeBytes } from './create-stores.js';
import { type KnownCall, KnownCalls } from './known-calls.js';
import type { KvStore, StoredRow, StoreUse } from './kv-store.js';
import { type Bucket, bodiesStream, callsBucket, keysBucket, rowKey, streamOf, token } from './names.js';
import { knownRow, type LocatedRow, noRoomNow, openRow, SharedRows } from './shared-rows.js';

export interface KvCallLogOptions {
  readonly store: KvStore;
  readonly owner: string;
  readonly clock: Clock;
  readonly isGone: (owner: string) => Promise<boolean>;
  readonly onProblem: (error: unknown) => void;
}

/** A smaller reply stays in its row when it was acknowledged; removing it would cost one more write for each call. */
const staysBytes = 512;
const usedMs = 2_000;
/** Room for the outcomes of calls that run when the bucket of calls is full. */
const reservedBytes = 16 * 1024 * 1024;
/** Replies of calls that run need room too. One worker has at most 64 MiB at each host. */
const bodyBytesMax = storeBytes - 3 * reservedBytes;
/** A store that gave room back so lately does it again soon. Otherwise its oldest entry expires first. */
const freedMs = 5_000;
const soonMs = 1_000;
const removalsAtOnce = 32;
/** Another host may have a copy of the request for so long. */
const afterDeadlineMs = 60_000;

export class KvCallLog implements CallLog {
  readonly owner: string;
  readonly #store: KvStore;
  readonly #clock: Clock;
  readonly #options: KvCallLogOptions;
  readonly #known: KnownCalls;
  readonly #removals: RowRemovals;
  readonly #rows: SharedRows;
  readonly #used: Record<StoreName, StoreUse & { readonly freedAtMs: number }> = {
    ...{ calls: unused, keys: unused, bodies: unused },
  };
  #usedAtMs = Number.NEGATIVE_INFINITY;
  #isClosed = false;

  constructor(options: KvCallLogOptions) {
    this.#options = options;
    this.owner = options.owner;
    this.#store = options.store;
    this.#clock = options.clock;
    this.#removals = new RowRemovals(options.clock, (bucket, sequences) => void this.#removeRows(bucket, sequences));
    this.#known = new KnownCalls(options.clock, (known) => this.#expired(known));
    this.#rows = new SharedRows(options.store, this.#known, options.clock);
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
    return this.#known.refusal(worker, isCallersKey);
  }

  async receive({ id, digest, state, reply, isCallersKey, deadlineMs }: NewCall): Promise<Received> {
    const { storeId } = this;
    const key = keyOf(id);
    const bucket = isCallersKey ? keysBucket : callsBucket;
    const before = this.#known.get(key);
    // A row that this host wrote and that is not in the store any more was lost, and the call may have run.
    const isLost = before !== undefined && before.seq > 0;
    const row: StoredRow = {
      ...{ state: isLost ? 'running' : state, owner: this.owner, digest, write: this.#store.newWrite() },
      ...{ attempts: isLost || state === 'running' ? 1 : 0 },
      ...{ storeId, isPurged: false, body: undefined, inline: isLost ? undefined : reply },
    };
    const known = before ? undefined : this.#known.add(id, bucket, deadlineMs);
    let isNew = false;
    try {
      for (;;) {
        const written = await this.#store.write(bucket, key, row, 0, storeId);
        if (written.kind === 'full') throw this.#full(isCallersKey ? 'keys' : 'calls');
        isNew = written.kind === 'written' && !isLost;
        const found = written.kind === 'written' ? { row, seq: written.seq } : await this.#rows.read(bucket, key);
        if (!found) continue;
        if (isNew && known) this.#rows.stored(known, row, found.seq);
        return { isNew, row: await this.#rows.withReply({ key, bucket, found }) };
      }
    } finally {
      if (known && !isNew) this.#known.forget(known);
    }
  }

  async begin(id: CallId, version: number): Promise<'begun' | CallRow | undefined> {
    const { storeId } = this;
    const key = keyOf(id);
    const known = this.#known.get(key);
    const at = (known?.seq === version ? openRow(known) : undefined) ?? (await this.#rows.locate(key));
    if (!at || isRemoved(at)) return undefined;
    const { row: before, seq } = at.found;
    if (seq !== version || hasOutcome(before)) return this.#rows.withReply(at);
    const row: StoredRow = {
      ...{ ...before, state: 'running', owner: this.owner, storeId },
      ...{ attempts: before.attempts + 1, write: this.#store.newWrite() },
    };
    const written = await this.#store.write(at.bucket, key, row, version, storeId);
    if (written.kind === 'full') throw this.#full('calls');
    if (written.kind === 'conflict') {
      if (known?.seq === version) known.row = undefined;
      return this.find(id);
    }
    this.#rows.stored(known ?? this.#known.add(id, at.bucket, brokerLimits.deadlineMs), row, written.seq);
    return 'begun';
  }

  finish(id: CallId, owner: string, outcome: CallOutcome): Promise<CallRow | undefined> {
    return this.#rows.finish(keyOf(id), owner, outcome);
  }

  async find(id: CallId): Promise<CallRow | undefined> {
    const at = await this.#rows.locate(keyOf(id));
    return at && !isRemoved(at) ? this.#rows.withReply(at) : undefined;
  }

  acknowledge(id: CallId): void {
    const key = keyOf(id);
    const known = this.#known.get(key);
    const read = this.#rows.takeRead(key);
    if (known ? !this.#known.acknowledge(known) : read?.bucket !== callsBucket) return;
    const at = known?.row ? knownRow(known, known.row) : read;
    if (!at) return;
    const dropped = this.#dropReply(at, known?.inlineBytes ?? at.found.row.inline?.length ?? 0);
    dropped.then(
      (seq) => known && this.#removals.add(known.deadlineAtMs + afterDeadlineMs, at.bucket, seq),
      this.#options.onProblem,
    );
  }

  async purge(worker: string, except: readonly string[] = []): Promise<void> {
    const kept = new Set(except.map(token));
    for (const bucket of [callsBucket, keysBucket] as const)
      for (const key of await this.#store.keysBelow(bucket, token(worker)))
        if (!kept.has(key.split('.')[1] ?? '')) await this.#purgeRow(bucket, key);
  }

  async isGone(owner: string): Promise<boolean> {
    return owner !== this.owner && this.#options.isGone(owner);
  }

  usage(): LogUsage {
    this.#measure();
    const usage = this.#known.usage();
    return { ...usage, callersKeys: Math.max(usage.callersKeys, this.#used.keys.rows) };
  }

  close(): Promise<void> {
    this.#isClosed = true;
    this.#known.close();
    this.#removals.close();
    this.#rows.close();
    return Promise.resolve();
  }

  /** Returns the sequence of the row. */
  async #dropReply({ key, bucket, found: { row, seq } }: LocatedRow, inlineBytes: number): Promise<number> {
    if (row.body) await this.#store.removeBody(row.body.seq);
    if (inlineBytes <= staysBytes) return seq;
    const bare: StoredRow = { ...row, write: this.#store.newWrite(), inline: undefined };
    const written = await this.#store.write(bucket, key, bare, seq, this.storeId);
    return written.kind === 'written' ? written.seq : seq;
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
      if (written.kind === 'conflict') continue;
      if (row.body) await this.#store.removeBody(row.body.seq);
      this.#rows.takeRead(key);
      const known = this.#known.get(key);
      if (known && state !== 'running') this.#known.forget(known);
      else if (known) known.row = undefined;
      return;
    }
  }

  #expired({ bucket, seq, row }: KnownCall): void {
    if (row?.body) this.#store.removeBody(row.body.seq).catch(() => {});
    this.#removals.add(this.#clock.nowMs(), bucket, seq);
  }

  /** Rows that cannot be removed now are removed by the age limit of the bucket. */
  async #removeRows(bucket: Bucket, sequences: readonly number[]): Promise<void> {
    for (let at = 0; at < sequences.length && !this.#isClosed; at += removalsAtOnce)
      await Promise.allSettled(sequences.slice(at, at + removalsAtOnce).map((seq) => this.#store.remove(bucket, seq)));
  }

  /** Asks for the sizes, at most every two seconds and only while the log is used. */
  #measure(): void {
    const nowMs = this.#clock.nowMs();
    if (nowMs - this.#usedAtMs < usedMs || this.#isClosed) return;
    this.#usedAtMs = nowMs;
    for (const name of storeNames)
      this.#store.used(streams[name]).then(
        (use) => {
          const { bytes, freedAtMs } = this.#used[name];
          this.#used[name] = { ...use, freedAtMs: use.bytes < bytes ? nowMs : freedAtMs };
        },
        // The last sizes are used. The server refuses what does not fit.
        () => {},
      );
  }

  #full(name: StoreName): HostError {
    const { firstExpiryMs, freedAtMs } = this.#used[name];
    const nowMs = this.#clock.nowMs();
    const isFreed = nowMs - freedAtMs < freedMs;
    return noRoomNow(contents[name], isFreed ? soonMs : Math.max(soonMs, firstExpiryMs - (nowMs - this.#usedAtMs)));
  }
}

const streams = { calls: streamOf(callsBucket), keys: streamOf(keysBucket), bodies: bodiesStream };
const contents = { calls: 'calls', keys: 'keys that callers chose', bodies: 'replies of calls' };
type StoreName = keyof typeof streams;
const storeNames = ['calls', 'keys', 'bodies'] as const;
const unused = { bytes: 0, rows: 0, firstExpiryMs: 0, freedAtMs: Number.NEGATIVE_INFINITY };

const keyOf = ({ worker, epoch, key }: CallId): string => rowKey(worker, epoch, key);
/** The row of a revoked worker, which is kept for late copies of its request only. */
const isRemoved = ({ found: { row } }: LocatedRow): boolean => row.isPurged && hasOutcome(row);

const stepMs = 1_000;

/**
 * When rows are removed from the store. Only sequences are in memory: a busy host has hundreds of thousands of acknowledged rows whose
 * deadline has not passed. Rows of a host that ends before that are removed by the age limit of their bucket.
 */
class RowRemovals {
  readonly #clock: Clock;
  readonly #remove: (bucket: Bucket, sequences: readonly number[]) => void;
  /** By bucket and by the time at which they are due, in steps. */
  readonly #due = new Map<Bucket, Map<number, number[]>>();
  #cancel: Cancel | undefined;

  constructor(clock: Clock, remove: (bucket: Bucket, sequences: readonly number[]) => void) {
    this.#clock = clock;
    this.#remove = remove;
  }

  add(atMs: number, bucket: Bucket, seq: number): void {
    const steps = this.#due.get(bucket) ?? new Map<number, number[]>();
    this.#due.set(bucket, steps);
    const step = Math.ceil(atMs / stepMs);
    const list = steps.get(step);
    if (list) list.push(seq);
    else steps.set(step, [seq]);
    this.#cancel ??= this.#clock.at(this.#clock.nowMs() + stepMs, () => this.#removeDue());
  }

  close(): void {
    this.#cancel?.();
    this.#due.clear();
  }

  #removeDue(): void {
    const now = Math.floor(this.#clock.nowMs() / stepMs);
    let left = 0;
    for (const [bucket, steps] of this.#due)
      for (const [step, sequences] of steps) {
        if (step > now) left++;
        else {
          steps.delete(step);
          this.#remove(bucket, sequences);
        }
      }
    this.#cancel = left === 0 ? undefined : this.#clock.at(this.#clock.nowMs() + stepMs, () => this.#removeDue());
  }
}
