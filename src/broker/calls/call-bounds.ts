/**
 * Counts what a log holds, and says why a new call finds no room. The bounds are those of protocol/limits.ts.
 * Invariant: a call is refused before it runs; a key that a caller chose is never removed to make room.
 */

import type { LogUsage } from '../../host/broker-status.js';
import type { Clock } from '../../kernel/clock.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import { brokerLimits } from '../protocol/limits.js';
import { errorBody } from '../protocol/reply-body.js';
import type { CallOutcome, CallRow } from './call-log.js';

/** How many rows and bytes were added (positive) or removed (negative). */
export interface UsageChange {
  readonly worker: string;
  readonly isCallersKey: boolean;
  readonly open: number;
  readonly finished: number;
  readonly bytes: number;
}

interface Held {
  rows: number;
  /** Rows with an outcome. */
  finished: number;
  bytes: number;
  /** Replies that wait in memory for room in the log. */
  waitingBytes: number;
  changedAtMs: number;
}

export type RowClass = 'calls' | 'keys';

/** Time until the first row of this worker, or of all workers, expires by itself. */
export type FirstExpiry = (kind: RowClass, worker?: string) => number;

const perWorker = {
  calls: { rows: brokerLimits.callsPerWorker, bytes: brokerLimits.replyBytesPerWorker },
  keys: { rows: brokerLimits.callersKeysPerWorker, bytes: brokerLimits.callersKeyBytesPerWorker },
};

/** A worker that reads its replies acknowledges them within this time. */
const ackMs = 1_000;
/** If the rows of a worker do not change for this long, the worker is taken to have ended: its replies stay until they expire. */
const leftMs = 5_000;
/** A store that is full is tried again after this time. */
const retryMs = 250;

export class CallBounds {
  readonly #clock: Clock;
  readonly #firstExpiryMs: FirstExpiry;
  readonly #all: Record<RowClass, Held> = { calls: nothing(), keys: nothing() };
  readonly #byWorker: Record<RowClass, Map<string, Held>> = { calls: new Map(), keys: new Map() };
  readonly #waiting = new Set<() => void>();
  #over: HostError | undefined;

  constructor(clock: Clock, firstExpiryMs: FirstExpiry) {
    this.#clock = clock;
    this.#firstExpiryMs = firstExpiryMs;
  }

  change({ worker, isCallersKey, open, finished, bytes }: UsageChange): void {
    const kind = isCallersKey ? 'keys' : 'calls';
    const held = this.#heldBy(worker, kind);
    for (const each of [held, this.#all[kind]]) {
      each.rows += open + finished;
      each.finished += finished;
      each.bytes += bytes;
      each.changedAtMs = this.#clock.nowMs();
    }
    this.#forgetEmpty(worker, kind, held);
  }

  /**
   * Writes an outcome with `write`, which rejects if the store is full. A reply without room waits, and is dropped at the deadline. A reply
   * to a caller's key does not wait: it is returned, and not kept.
   */
  async finish(
    worker: string,
    outcome: CallOutcome,
    write: (kept: CallOutcome) => Promise<CallRow | undefined>,
  ): Promise<CallRow | undefined> {
    const { isCallersKey, reply } = outcome;
    const { length } = reply;
    const deadlineAtMs = this.#clock.nowMs() + outcome.deadlineMs;
    do {
      try {
        if (this.hasRoom(worker, length, isCallersKey)) return await this.#counted(worker, outcome, write);
      } catch (error) {
        if (!isOutOfRoom(error)) throw error;
      }
      if (isCallersKey) {
        const kept = errorBody(notKept(length));
        const row = await write({ ...outcome, reply: kept });
        return row?.reply === kept ? { ...row, reply } : row;
      }
      if (this.#over) throw this.#over;
      await this.room(worker, length, Math.min(deadlineAtMs, this.#clock.nowMs() + retryMs));
    } while (this.#clock.nowMs() < deadlineAtMs);
    return write({ ...outcome, state: 'uncertain', reply: errorBody(noRoom(length)) });
  }

  /** The reply counts while it is written, because many outcomes may come at once. */
  async #counted<T>(worker: string, outcome: CallOutcome, write: (kept: CallOutcome) => Promise<T>): Promise<T> {
    const { isCallersKey, reply } = outcome;
    const count = (bytes: number) => this.change({ worker, isCallersKey, open: 0, finished: 0, bytes });
    count(reply.length);
    return await write(outcome).finally(() => count(-reply.length));
  }

  /** Resolves at the next `wake`, or at `untilMs`. Until then the bytes of the waiting reply count for its worker. */
  async room(worker: string, bytes: number, untilMs: number): Promise<void> {
    const held = this.#heldBy(worker, 'calls');
    const count = (by: number) => {
      held.waitingBytes += by;
      this.#all.calls.waitingBytes += by;
    };
    count(bytes);
    await new Promise<void>((resolve) => {
      const wake = () => {
        cancel();
        this.#waiting.delete(wake);
        resolve();
      };
      const cancel = this.#clock.at(untilMs, wake);
      this.#waiting.add(wake);
    });
    count(-bytes);
    this.#forgetEmpty(worker, 'calls', held);
  }

  get isWaiting(): boolean {
    return this.#waiting.size > 0;
  }

  /** Lets all waiting replies look for room again. */
  wake(): void {
    for (const wake of [...this.#waiting]) wake();
  }

  /** Replies without room are given up with this error. */
  close(error: HostError): void {
    this.#over = error;
    this.wake();
  }

  hasRoom(worker: string, bytes: number, isCallersKey: boolean): boolean {
    const { calls, keys } = this.#all;
    const kind = isCallersKey ? 'keys' : 'calls';
    const held = this.#byWorker[kind].get(worker)?.bytes ?? 0;
    if (held + bytes > perWorker[kind].bytes) return false;
    if (isCallersKey && keys.bytes + bytes > brokerLimits.callersKeyBytes) return false;
    return calls.bytes + keys.bytes + bytes <= brokerLimits.replyBytesInAll;
  }

  refusal(worker: string, isCallersKey: boolean): HostError | undefined {
    const kind = isCallersKey ? 'keys' : 'calls';
    const held = this.#byWorker[kind].get(worker);
    const limit = perWorker[kind];
    if (held && (held.rows >= limit.rows || held.bytes + held.waitingBytes >= limit.bytes)) {
      const what = kind === 'keys' ? 'keys that callers chose' : 'calls whose replies are not acknowledged';
      const bytes = held.bytes + held.waitingBytes;
      const text = `${shown(worker)} has ${held.rows} ${what}, with ${bytes} bytes`;
      return full(kind === 'keys' ? 'worker_keys' : 'worker_calls', text, this.#freeMs(held, kind, worker));
    }
    if (!this.#isFull(kind)) return undefined;
    const all = this.#all[kind];
    const text = `the log of calls is full: ${all.rows} rows with ${all.bytes} bytes`;
    return full(kind === 'keys' ? 'all_keys' : 'all_replies', text, this.#freeMs(all, kind));
  }

  usage(): LogUsage {
    const { calls, keys } = this.#all;
    const finished = calls.finished + keys.finished;
    const open = calls.rows + keys.rows - finished;
    return { open, finished, replyBytes: calls.bytes, callersKeys: keys.rows };
  }

  #isFull(kind: RowClass): boolean {
    const { calls, keys } = this.#all;
    if (calls.bytes + calls.waitingBytes + keys.bytes >= brokerLimits.replyBytesInAll) return true;
    return kind === 'keys' && (keys.rows >= brokerLimits.callersKeys || keys.bytes >= brokerLimits.callersKeyBytes);
  }

  /** Time until there may be room: soon if the worker still reads, else when its first row expires. */
  #freeMs({ finished, changedAtMs }: Held, kind: RowClass, worker?: string): number {
    const isLeft = finished > 0 && this.#clock.nowMs() - changedAtMs >= leftMs;
    return kind === 'keys' || isLeft ? this.#firstExpiryMs(kind, worker) : ackMs;
  }

  #forgetEmpty(worker: string, kind: RowClass, { rows, bytes, waitingBytes }: Held): void {
    // The entry stays while a reply of the worker waits for room, even if the worker has no rows.
    if (rows <= 0 && bytes <= 0 && waitingBytes === 0) this.#byWorker[kind].delete(worker);
  }

  #heldBy(worker: string, kind: RowClass): Held {
    const held = this.#byWorker[kind].get(worker) ?? nothing();
    this.#byWorker[kind].set(worker, held);
    return held;
  }
}

const nothing = (): Held => ({ rows: 0, finished: 0, bytes: 0, waitingBytes: 0, changedAtMs: 0 });

/** Rows of the host's own calls have a principal instead of a worker (keyed-calls.ts). */
const shown = (worker: string): string =>
  worker.startsWith('_') ? `principal '${worker.slice(1)}'` : `worker '${worker}'`;

/** The store refused a write because it is full. */
export const isOutOfRoom = (error: unknown): boolean =>
  isHostError(error) && (error.details.reason === 'disk_full' || error.details.reason === 'bucket_full');

/** A row that gets its outcome now is kept at least this long. */
export const keptMs: Readonly<Record<RowClass, number>> = {
  calls: brokerLimits.unackedMs,
  keys: brokerLimits.callersKeyMs,
};

const full = (reason: string, message: string, freeMs: number): HostError =>
  new HostError('overloaded', message, {
    ...{ reason, retryAfterMs: Math.max(ackMs, Math.ceil(freeMs)), execution: 'not_executed' },
    hint: reason.endsWith('keys') ? 'use fewer keys of your own' : 'take the replies of earlier calls first',
  });

/** Recorded if there is no room for the reply to a call with a caller's key. A caller that still waits gets the reply itself. */
const notKept = (actual: number): HostError =>
  new HostError('result_too_large', 'the call has run, but the log had no room to keep its reply', {
    ...{ reason: 'not_kept', actual, execution: 'uncertain' },
    hint: 'look at its effect; a new call needs a new key',
  });

/** The tool has run, and its reply was dropped at the deadline. */
const noRoom = (actual: number): HostError =>
  new HostError('outcome_uncertain', 'the call has run, but the log had no room for its reply until its deadline', {
    ...{ reason: 'no_room', actual, execution: 'uncertain' },
    hint: 'look at its effect before sending it again',
  });
