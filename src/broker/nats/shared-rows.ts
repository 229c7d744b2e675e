/**
 * Rows of calls that several hosts change: the row in the store, and what this host knows of it.
 *
 * Invariant: a row without an outcome and with another store id becomes `uncertain` when it is read. The store is then an older copy, and
 * the call may have run since, so no host begins it or waits for it.
 */
import { type Clock, sleep } from '../../kernel/clock.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import { noRoom, notKept } from '../calls/call-bounds.js';
import { type CallOutcome, type CallRow, hasOutcome } from '../calls/call-log.js';
import { errorBody } from '../protocol/reply-body.js';
import type { KnownCall, KnownCalls } from './known-calls.js';
import { type KvStore, type StoredRow, type VersionedRow, writeMs } from './kv-store.js';
import { type Bucket, callsBucket, keysBucket } from './names.js';
import { notExecuted } from './nats-client.js';

export interface LocatedRow {
  readonly key: string;
  readonly bucket: Bucket;
  readonly found: VersionedRow;
}

/** Larger replies are in the stream of bodies: a bucket does not give back the room of large rows soon. */
const inlineBytes = 64 * 1024;
const retryMs = 250;
const repliesReadMax = 10_000;

export class SharedRows {
  readonly #store: KvStore;
  readonly #known: KnownCalls;
  readonly #clock: Clock;
  /** Rows of other hosts whose reply was read here. Their replies are removed too when they were acknowledged. */
  readonly #repliesRead = new Map<string, LocatedRow>();
  #isClosed = false;

  constructor(store: KvStore, known: KnownCalls, clock: Clock) {
    this.#store = store;
    this.#known = known;
    this.#clock = clock;
  }

  /** Finds the row in either bucket: the key does not tell whether a caller chose it. */
  async locate(key: string): Promise<LocatedRow | undefined> {
    const bucket = this.#known.get(key)?.bucket ?? callsBucket;
    const found = await this.read(bucket, key);
    if (found) return { key, bucket, found };
    const other = bucket === callsBucket ? await this.read(keysBucket, key) : undefined;
    return other && { key, bucket: keysBucket, found: other };
  }

  async read(bucket: Bucket, key: string): Promise<VersionedRow | undefined> {
    for (;;) {
      const found = await this.#store.read(bucket, key);
      if (!found || hasOutcome(found.row) || found.row.storeId === this.#store.id.id) return found;
      // Another host may have written a new id that this host has not read yet.
      this.#store.id.check();
      await this.#store.id.checking;
      const storeId = this.#store.id.id;
      if (found.row.storeId === storeId) return found;
      const row: StoredRow = {
        ...found.row,
        ...{ state: 'uncertain', storeId, write: this.#store.newWrite() },
        inline: errorBody(olderStore()),
      };
      const written = await this.#store.write(bucket, key, row, found.seq, storeId);
      if (written.kind === 'written') return { row, seq: written.seq };
      if (written.kind === 'full') throw noRoomNow('the outcome of a call', retryMs);
    }
  }

  /** Adds the reply to the row. A large reply is read from the stream of bodies. */
  async withReply({ key, bucket, found }: LocatedRow): Promise<CallRow> {
    const { row, seq } = found;
    const reply = row.inline ?? (row.body && (await this.#store.readBody(row.body.seq)));
    if (reply && !this.#known.get(key) && this.#repliesRead.size < repliesReadMax)
      this.#repliesRead.set(key, { key, bucket, found });
    return visible(row, seq, reply);
  }

  /** Remembers the row as it was written. The reply is not kept in memory. */
  stored(known: KnownCall, row: StoredRow, seq: number): void {
    known.row = { ...row, inline: undefined };
    known.seq = seq;
    known.inlineBytes = row.inline?.length ?? 0;
    if (hasOutcome(row)) this.#known.finished(known, row.inline?.length ?? row.body?.length ?? 0);
  }

  /** See `CallLog.finish`. */
  async finish(key: string, owner: string, outcome: CallOutcome): Promise<CallRow | undefined> {
    const deadlineAtMs = this.#clock.nowMs() + outcome.deadlineMs;
    const giveUpAtMs = Math.max(deadlineAtMs, this.#clock.nowMs() + writeMs);
    const write = this.#store.newWrite();
    let { state, reply }: Pick<CallOutcome, 'state' | 'reply'> = outcome;
    let body: StoredRow['body'];
    for (;;) {
      const known = this.#known.get(key);
      const at = openRow(known) ?? (await this.#patiently(giveUpAtMs, () => this.locate(key)));
      if (!at) return undefined;
      const { row: before, seq } = at.found;
      if (hasOutcome(before) || before.owner !== owner) return this.withReply(at);
      const hasRoom = !known || this.#known.hasRoom(known, reply.length);
      if (outcome.isCallersKey && !hasRoom && reply === outcome.reply) reply = errorBody(notKept(reply.length));
      const isLarge = reply.length > inlineBytes && at.bucket === callsBucket && !before.isPurged;
      if (isLarge && !body && hasRoom) {
        const bodySeq = await this.#patiently(giveUpAtMs, () => this.#store.addBody(key, reply, write));
        if (bodySeq !== undefined) body = { seq: bodySeq, length: reply.length };
      }
      if (!isLarge || body) {
        const inline = body || before.isPurged ? undefined : reply;
        const storeId = this.#store.id.id;
        const row: StoredRow = { ...before, ...{ state, storeId, write, body, inline } };
        const written = await this.#patiently(giveUpAtMs, () => this.#store.write(at.bucket, key, row, seq, storeId));
        if (written.kind === 'written') {
          if (known) this.stored(known, row, written.seq);
          const answer = outcome.isCallersKey ? outcome.reply : reply;
          return visible(row, written.seq, before.isPurged ? undefined : answer);
        }
        if (written.kind === 'conflict') {
          // The row was changed by another host. The next round reads it.
          if (known?.seq === seq) known.row = undefined;
          continue;
        }
      }
      if (this.#isClosed) throw noRoomNow('the outcome of a call', retryMs);
      if (outcome.isCallersKey && reply === outcome.reply) reply = errorBody(notKept(reply.length));
      else if (this.#clock.nowMs() < deadlineAtMs && !outcome.isCallersKey)
        await this.#known.room(known, reply.length, retryMs);
      else if (state === 'uncertain') throw noRoomNow('the outcome of a call', retryMs);
      else [state, reply, body] = ['uncertain', errorBody(noRoom(reply.length)), undefined];
    }
  }

  /** The reply of this call was acknowledged. Returns where it is. */
  takeRead(key: string): LocatedRow | undefined {
    const read = this.#repliesRead.get(key);
    this.#repliesRead.delete(key);
    return read;
  }

  /** Operations that wait for the server or for room are given up. */
  close(): void {
    this.#isClosed = true;
  }

  /** Tries again while the server does not answer, or another id of the store is being read. */
  async #patiently<T>(untilMs: number, run: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await run();
      } catch (error) {
        const isOver = this.#isClosed || this.#clock.nowMs() >= untilMs;
        if (isOver || (isHostError(error) && error.code !== 'transport')) throw error;
        await sleep(this.#clock, retryMs);
      }
    }
  }
}

/** A row of this host, which needs no read. */
export const knownRow = ({ rowKey: key, bucket, seq }: KnownCall, row: StoredRow): LocatedRow => ({
  ...{ key, bucket, found: { row, seq } },
});

/** A row of this host that has no outcome. A reply is not in memory, so a row with one is read. */
export const openRow = (known: KnownCall | undefined): LocatedRow | undefined =>
  known?.row && !hasOutcome(known.row) ? knownRow(known, known.row) : undefined;

const visible = (
  { state, owner, digest, attempts }: StoredRow,
  version: number,
  reply: Buffer | undefined,
): CallRow => ({
  ...{ state, owner, digest, attempts, version, reply },
});

export const noRoomNow = (what: string, retryAfterMs: number): HostError =>
  new HostError('insufficient_storage', `the NATS server has no room for ${what}`, {
    ...{ ...notExecuted, reason: 'bucket_full', retryAfterMs, hint: 'room comes back as earlier calls expire' },
  });

const olderStore = (): HostError =>
  new HostError('outcome_uncertain', 'the call may have run: the NATS server has an older copy of its store', {
    ...{ execution: 'uncertain', reason: 'older_store', hint: 'look at its effect before sending it again' },
  });
