/**
 * The log of calls on NATS, shared by several hosts: a row per call in a KV bucket, large replies in a stream of their own.
 * Not here: lost answers of the server and the id of the store (kv-store.ts), bounds (known-calls.ts).
 *
 * Invariants: every change of a row names the version that it replaces. A row whose reply was acknowledged stays until a minute after the
 * deadline, because a late copy of the request must find it; a reply above `staysBytes` is removed at once. A row without an outcome and with
 * another store id becomes `uncertain` when it is read: the store is an older copy, and the call may have run since.
 */
import type { LogUsage } from '../../host/broker-status.js';
import type { Cancel, Clock } from '../../kernel/clock.js';
import { HostError, notExecuted } from '../../kernel/errors.js';
import { isOutOfRoom } from '../calls/call-bounds.js';
import type { CallId, CallLog, CallOutcome, CallRow, NewCall, Received } from '../calls/call-log.js';
import { hasOutcome } from '../calls/call-log.js';
import { brokerLimits } from '../protocol/limits.js';
import { errorBody } from '../protocol/reply-body.js';
import { type KnownCall, KnownCalls } from './known-calls.js';
import { type FoundRow, type KvStore, type StoredRow, writeMs } from './kv-store.js';
import { type Bucket, bodiesStream, callsBucket, keysBucket, rowKey, token } from './names.js';

/** Larger replies are in the stream of bodies: a bucket does not give back the room of large rows soon. */
const inlineBytes = 64 * 1024;
/** A smaller reply stays in its row when it was acknowledged; removing it would cost one more write for each call. */
const staysBytes = 512;
const removalsAtOnce = 32;
const removalStepMs = 1_000;
/** Time after the deadline of a call in which another host may still have a copy of its request. */
const afterDeadlineMs = 60_000;

export class KvCallLog implements CallLog {
  readonly owner: string;
  readonly #clock: Clock;
  readonly #known: KnownCalls;
  /**
   * Sequences of rows by store, bucket and the second in which they are removed. A busy host has hundreds of thousands of acknowledged rows
   * whose deadline has not passed. If the host ends earlier, the age limit of the bucket removes the rows.
   */
  readonly #removals = new Map<string, { readonly sequences: number[]; readonly cancel: Cancel }>();
  #isClosed = false;

  constructor(
    private readonly store: KvStore,
    private readonly isOtherGone: (owner: string) => Promise<boolean>,
  ) {
    const { owner, clock } = store.parts;
    [this.owner, this.#clock] = [owner, clock];
    this.#known = new KnownCalls(clock, (known) => this.#expired(known));
  }

  get storeId(): string {
    return this.store.id.id;
  }

  refusal(worker: string, isCallersKey: boolean): HostError | undefined {
    return this.store.sizes.refusal(isCallersKey) ?? this.#known.bounds.refusal(worker, isCallersKey);
  }

  async receive({ id, digest, state, reply, isCallersKey, deadlineMs }: NewCall): Promise<Received> {
    const { storeId, owner } = this;
    const key = keyOf(id);
    const bucket = isCallersKey ? keysBucket : callsBucket;
    const before = this.#known.get(key);
    // This host wrote the row, and the store does not have it any more: it was lost, and the call may have run.
    const isLost = before !== undefined && before.seq > 0;
    const attempts = isLost || state === 'running' ? 1 : 0;
    const [first, inline] = isLost ? (['running', undefined] as const) : ([state, reply] as const);
    const write = this.store.newWrite();
    const row = { state: first, owner, digest, attempts, storeId, write, isPurged: false, body: undefined, inline };
    const known = before ?? this.#known.add(id, bucket, deadlineMs);
    try {
      for (;;) {
        const seq = await this.store.write(bucket, key, row, 0);
        if (seq !== 'conflict' && !isLost) {
          this.#known.stored(known, row, seq);
          return { isNew: true, row: visible(row, seq, reply) };
        }
        const lost: FoundRow | undefined = seq === 'conflict' ? undefined : { bucket, row, seq };
        const found = lost ?? (await this.#read(bucket, key));
        if (found) return { isNew: false, row: await this.#withReply(id, found) };
        if (storeId !== this.storeId) throw storeChanged();
      }
    } finally {
      if (known !== before && known.seq === 0) this.#known.forget(known);
    }
  }

  async begin(id: CallId, version: number): Promise<'begun' | CallRow | undefined> {
    const { owner, storeId } = this;
    const key = keyOf(id);
    const known = this.#known.get(key);
    // If the row was written to another store, another host may have begun the call since.
    const isCurrent = known?.seq === version && known.row?.storeId === this.storeId;
    const found = (isCurrent ? openRow(known) : undefined) ?? (await this.#locate(key));
    if (!found || isRemoved(found)) return undefined;
    if (found.seq !== version || hasOutcome(found.row)) return this.#withReply(id, found);
    const [attempts, write] = [found.row.attempts + 1, this.store.newWrite()];
    const begun = await this.#replace(key, found, { ...found.row, state: 'running', owner, storeId, attempts, write });
    if (begun === 'conflict') return this.find(id);
    if (!known) this.#known.stored(this.#known.add(id, begun.bucket, brokerLimits.deadlineMs), begun.row, begun.seq);
    return 'begun';
  }

  finish(id: CallId, owner: string, outcome: CallOutcome): Promise<CallRow | undefined> {
    const untilMs = this.#clock.nowMs() + Math.max(outcome.deadlineMs, writeMs);
    const ending: Ending = { write: this.store.newWrite(), body: undefined, untilMs };
    return this.#known.bounds.finish(id.worker, outcome, (kept) => this.#finish(id, owner, kept, ending));
  }

  async #finish(id: CallId, owner: string, outcome: CallOutcome, ending: Ending): Promise<CallRow | undefined> {
    const key = keyOf(id);
    const { write, untilMs } = ending;
    const found = openRow(this.#known.get(key)) ?? (await this.store.until(untilMs, () => this.#locate(key)));
    if (!found) return undefined;
    const { bucket, row: before } = found;
    if (hasOutcome(before) || before.owner !== owner) return this.#withReply(id, found);
    const { state } = outcome;
    const reply = before.isPurged ? undefined : outcome.reply;
    const isLarge = reply && reply.length > inlineBytes && bucket === callsBucket;
    if (isLarge) {
      const seq = ending.body?.seq ?? (await this.store.until(untilMs, () => this.store.addBody(key, reply, write)));
      ending.body = { seq, length: reply.length };
    }
    const [body, inline, { storeId }] = isLarge ? [ending.body, undefined, this] : [undefined, reply, this];
    const ended = await this.#replace(key, found, { ...before, state, storeId, write, body, inline }, untilMs);
    // Another host changed the row, which is read now.
    if (ended === 'conflict') return this.#finish(id, owner, outcome, ending);
    if (!this.#known.get(key)) this.#adopt(id, ended);
    return visible(ended.row, ended.seq, reply);
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
    else this.#dropReply(known, known.row).then(removed, this.store.parts.onProblem);
  }

  async purge(worker: string, except: readonly string[] = []): Promise<void> {
    const kept = new Set(except.map(token));
    for (const bucket of [callsBucket, keysBucket] as const)
      for (const key of await this.store.keysBelow(bucket, token(worker)))
        if (!kept.has(key.split('.')[1] ?? '')) await this.#purgeRow(bucket, key);
  }

  async isGone(owner: string): Promise<boolean> {
    return owner !== this.owner && this.isOtherGone(owner);
  }

  usage(): LogUsage {
    const usage = this.#known.bounds.usage();
    return { ...usage, callersKeys: Math.max(usage.callersKeys, this.store.sizes.callersKeys) };
  }

  close(): Promise<void> {
    this.#isClosed = true;
    this.store.close();
    this.#known.close(this.store.sizes.full(bodiesStream));
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
      const found = await this.store.read(bucket, key);
      if (!found || hasOutcome(found.row) || found.row.storeId === this.storeId) return found;
      // Another host may have written a new id that this host has not read yet.
      this.store.id.check();
      await this.store.checked();
      if (found.row.storeId === this.storeId) return found;
      const [{ storeId }, write, inline] = [this, this.store.newWrite(), errorBody(olderStore())];
      const ended = await this.#replace(key, found, { ...found.row, state: 'uncertain', storeId, write, inline });
      if (ended !== 'conflict') return ended;
    }
  }

  /** Writes the next version of a row, and remembers it. */
  async #replace(
    key: string,
    { bucket, seq }: FoundRow,
    row: StoredRow,
    untilMs?: number,
  ): Promise<FoundRow | 'conflict'> {
    const written = await this.store.write(bucket, key, row, seq, untilMs);
    const known = this.#known.get(key);
    if (written !== 'conflict') {
      if (known) this.#known.stored(known, row, written);
      return { bucket, row, seq: written };
    }
    // The row of another host is read when it is needed.
    if (known?.seq === seq) known.row = undefined;
    return written;
  }

  /** Adds the reply to the row. A large reply is read from the stream of bodies. */
  async #withReply(id: CallId, found: FoundRow): Promise<CallRow> {
    const { row, seq } = found;
    const reply = row.inline ?? (await this.store.readBody(row));
    if (reply && row.owner !== this.owner) this.#adopt(id, found);
    return visible(row, seq, reply);
  }

  /**
   * Counts the reply to a call that another host received. This host has read or written its outcome, so the worker acknowledges it here.
   */
  #adopt(id: CallId, { bucket, row, seq }: FoundRow): void {
    if (bucket !== callsBucket || !hasOutcome(row) || !(row.inline || row.body)) return;
    // This store has the row, even if the row names an earlier store id. With that id, `acknowledge` would ignore the row.
    this.#known.adopt(id, { ...row, storeId: this.storeId }, seq);
  }

  /** Returns the sequence of the row. */
  async #dropReply({ rowKey: key, bucket, seq }: KnownCall, row: StoredRow): Promise<number> {
    if (!row.body) {
      const next = { ...row, write: this.store.newWrite(), inline: undefined };
      const bare = await this.#replace(key, { bucket, row, seq }, next).catch(unlessFull);
      return bare && bare !== 'conflict' ? bare.seq : seq;
    }
    await this.store.removeBody(key, row);
    return seq;
  }

  /**
   * The row stays, without a reply: a host that does not know yet that the worker was revoked must not take a late copy of the request
   * for a new call.
   */
  async #purgeRow(bucket: Bucket, key: string): Promise<void> {
    const { storeId } = this;
    const found = await this.store.read(bucket, key);
    if (!found || found.row.isPurged) return;
    const { state } = found.row;
    const bare = { ...found.row, storeId, isPurged: true, body: undefined, inline: undefined };
    const [write, ended] = [this.store.newWrite(), state === 'received' ? 'refused' : state];
    const purged = await this.#replace(key, found, { ...bare, write, state: ended }).catch(unlessFull);
    if (purged === 'conflict') return this.#purgeRow(bucket, key);
    await this.store.removeBody(key, found.row);
    const known = this.#known.get(key);
    if (known && state !== 'running') this.#known.forget(known);
  }

  #expired({ rowKey: key, bucket, seq, row }: KnownCall): void {
    if (row?.storeId !== this.storeId) return;
    this.store.removeBody(key, row).catch(() => {});
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
      await this.store.checked().catch(() => {});
      if (this.store.id.checking || this.storeId !== storeId) return;
      const some = sequences.slice(at, at + removalsAtOnce);
      await Promise.allSettled(some.map((seq) => this.store.removeRow(bucket, seq)));
    }
  }
}

/** What every try to write one outcome has in common. `body`: where a large reply is. */
type Ending = Pick<StoredRow, 'write'> & { body: StoredRow['body']; readonly untilMs: number };

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

function unlessFull(error: unknown): undefined {
  if (!isOutOfRoom(error)) throw error;
}

const storeChanged = (): HostError => {
  const facts = { reason: 'store_changed' };
  return notExecuted('transport', 'the NATS server has another store than before', 'send the call again', facts);
};

const olderStore = (): HostError =>
  new HostError('outcome_uncertain', 'the call may have run: the NATS server has an older copy of its store', {
    ...{ execution: 'uncertain', reason: 'older_store', hint: 'look at its effect before sending it again' },
  });
