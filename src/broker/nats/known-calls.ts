/**
 * The calls that this host received and that are not acknowledged, in memory: bounds per worker and usage. Callers' keys stay for a day.
 * Each host counts what it knows; the sizes of the buckets bound the sum of all hosts.
 */
import { setBounded } from '../../kernel/bounded-map.js';
import type { Cancel, Clock } from '../../kernel/clock.js';
import type { HostError } from '../../kernel/errors.js';
import { FreshMap } from '../../kernel/fresh-map.js';
import { CallBounds, keptMs, type RowClass } from '../calls/call-bounds.js';
import { type CallId, hasOutcome } from '../calls/call-log.js';
import { brokerLimits } from '../protocol/limits.js';
import type { StoredRow } from './kv-store.js';
import { type Bucket, callsBucket, keysBucket, rowKey } from './names.js';

export interface KnownCall {
  readonly rowKey: string;
  readonly bucket: Bucket;
  readonly worker: string;
  readonly deadlineAtMs: number;
  /** What is stored, without the reply. Undefined: not known. */
  row: StoredRow | undefined;
  seq: number;
  isFinished: boolean;
  replyBytes: number;
  expiresAtMs: number;
}

const lookMs = 1_000;
const sweepMs = 10_000;
/** Bound of `#uncounted`. The rows of further replies stay in the store until its age limit. */
const uncountedMax = 4_096;

export class KnownCalls {
  readonly #calls = new FreshMap<string, KnownCall>();
  /**
   * Replies to calls that another host received, for workers at their bound. The rows of these replies are removed when acknowledged, too.
   */
  readonly #uncounted = new Map<string, KnownCall>();
  readonly bounds: CallBounds;
  /** When the first finished row of each worker expires, as of `#lookedAtMs`. */
  #expiries: Record<RowClass, Map<string, number>> = { calls: new Map(), keys: new Map() };
  #lookedAtMs = Number.NEGATIVE_INFINITY;
  #cancelSweep: Cancel | undefined;

  constructor(
    private readonly clock: Clock,
    private readonly onExpired: (known: KnownCall) => void,
  ) {
    this.#sweepLater();
    this.bounds = new CallBounds(clock, (kind, worker) => this.#firstExpiryMs(kind, worker));
  }

  get(key: string): KnownCall | undefined {
    return this.#calls.get(key);
  }

  /** Counts a call that is being received. */
  add(id: CallId, bucket: Bucket, deadlineMs: number): KnownCall {
    return this.#add(this.#made(id, bucket, deadlineMs));
  }

  /** Call it if the row was not created, was removed, or belongs to another host. */
  forget(known: KnownCall): void {
    if (this.#calls.get(known.rowKey) !== known) return;
    this.#calls.delete(known.rowKey);
    this.#count(known, -1);
  }

  /** Remembers the row as it was written, without the reply. */
  stored(known: KnownCall, row: StoredRow, seq: number): void {
    const bytes = note(known, row, seq);
    if (!hasOutcome(row) || known.isFinished) return;
    const { worker, bucket } = known;
    const isCallersKey = bucket === keysBucket;
    known.isFinished = true;
    known.replyBytes = bytes;
    // A caller's key is kept for a day from its outcome on.
    if (isCallersKey) known.expiresAtMs = this.clock.nowMs() + keptMs.keys;
    this.bounds.change({ worker, isCallersKey, open: -1, finished: 1, bytes });
  }

  /** Counts the reply to a call that another host received: it is acknowledged here. A worker at its bound gets the reply uncounted. */
  adopt(id: CallId, row: StoredRow, seq: number): void {
    const made = this.#made(id, callsBucket, brokerLimits.deadlineMs);
    if (this.#calls.get(made.rowKey)) return;
    this.#uncounted.delete(made.rowKey);
    if (!this.bounds.refusal(id.worker, false)) return this.stored(this.#add(made), row, seq);
    const replyBytes = note(made, row, seq);
    setBounded(this.#uncounted, made.rowKey, { ...made, isFinished: true, replyBytes }, uncountedMax);
  }

  /** Returns undefined if the row stays: no outcome is known, or a caller chose the key and the call was not refused. */
  acknowledge(key: string): KnownCall | undefined {
    const known = this.#calls.get(key) ?? this.#uncounted.get(key);
    const isKept = known?.bucket === keysBucket && known.row?.state !== 'refused';
    if (!known?.isFinished || isKept) return undefined;
    this.#uncounted.delete(key);
    this.forget(known);
    this.bounds.wake();
    return known;
  }

  close(error: HostError): void {
    this.#cancelSweep?.();
    this.bounds.close(error);
  }

  #firstExpiryMs(kind: RowClass, worker: string | undefined): number {
    const nowMs = this.clock.nowMs();
    // Not looked up for each refusal, because there may be many calls and many refusals.
    if (nowMs - this.#lookedAtMs >= lookMs) this.#lookAtExpiries(nowMs);
    const known = this.#expiries[kind];
    const first = worker === undefined ? Math.min(...known.values()) : known.get(worker);
    return first === undefined || first === Number.POSITIVE_INFINITY ? keptMs[kind] : first - nowMs;
  }

  #lookAtExpiries(nowMs: number): void {
    this.#lookedAtMs = nowMs;
    this.#expiries = { calls: new Map(), keys: new Map() };
    for (const known of this.#calls.values()) {
      if (!known.isFinished) continue;
      const first = this.#expiries[kindOf(known)];
      first.set(known.worker, Math.min(first.get(known.worker) ?? Number.POSITIVE_INFINITY, known.expiresAtMs));
    }
  }

  #sweepLater(): void {
    this.#cancelSweep = this.clock.at(this.clock.nowMs() + sweepMs, () => {
      for (const known of this.#calls.values()) {
        // Open rows too: their calls ended at their deadline, and their outcome could not be written.
        if (known.expiresAtMs > this.clock.nowMs()) continue;
        this.forget(known);
        this.onExpired(known);
      }
      this.#sweepLater();
    });
  }

  #add(known: KnownCall): KnownCall {
    this.#calls.set(known.rowKey, known);
    this.#count(known, 1);
    return known;
  }

  #made({ worker, epoch, key }: CallId, bucket: Bucket, deadlineMs: number): KnownCall {
    const deadlineAtMs = this.clock.nowMs() + deadlineMs;
    const expiresAtMs = deadlineAtMs + keptMs[kindOf({ bucket })];
    // A literal: every call makes one of these.
    return {
      rowKey: rowKey(worker, epoch, key),
      bucket,
      worker,
      deadlineAtMs,
      expiresAtMs,
      row: undefined,
      seq: 0,
      isFinished: false,
      replyBytes: 0,
    };
  }

  #count({ worker, bucket, isFinished, replyBytes }: KnownCall, by: 1 | -1): void {
    const [open, finished] = isFinished ? [0, by] : [by, 0];
    this.bounds.change({ worker, isCallersKey: bucket === keysBucket, open, finished, bytes: by * replyBytes });
  }
}

/** Returns the size of the reply. */
function note(known: KnownCall, row: StoredRow, seq: number): number {
  known.row = row.inline ? { ...row, inline: undefined } : row;
  known.seq = seq;
  return row.inline?.length ?? row.body?.length ?? 0;
}

const kindOf = ({ bucket }: Pick<KnownCall, 'bucket'>): RowClass => (bucket === keysBucket ? 'keys' : 'calls');
