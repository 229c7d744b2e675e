/**
 * Counts what a log holds, and says why a new call finds no room. The bounds are those of protocol/limits.ts.
 * Invariant: a call is refused before it runs; a key that a caller chose is never removed to make room.
 */
import { HostError } from '../../kernel/errors.js';
import { brokerLimits } from '../protocol/limits.js';
import type { LogUsage } from './call-log.js';

/** Rows that came (positive) or went (negative). */
export interface UsageChange {
  readonly worker: string;
  readonly isCallersKey: boolean;
  readonly open: number;
  readonly finished: number;
  readonly bytes: number;
}

interface Held {
  rows: number;
  bytes: number;
}

type Class = 'calls' | 'keys';

const limitsOf = {
  calls: {
    ofOne: { rows: brokerLimits.callsPerWorker, bytes: brokerLimits.replyBytesPerWorker },
    ofAll: { rows: Number.POSITIVE_INFINITY, bytes: brokerLimits.replyBytesInAll },
  },
  keys: {
    ofOne: { rows: brokerLimits.callersKeysPerWorker, bytes: brokerLimits.callersKeyBytesPerWorker },
    ofAll: { rows: brokerLimits.callersKeys, bytes: brokerLimits.callersKeyBytes },
  },
};

/** A worker frees its own room by taking its replies. */
const takeMs = 1_000;

export class CallBounds {
  readonly #all: Record<Class, Held> = { calls: { rows: 0, bytes: 0 }, keys: { rows: 0, bytes: 0 } };
  readonly #byWorker: Record<Class, Map<string, Held>> = { calls: new Map(), keys: new Map() };
  #open = 0;
  #finished = 0;
  /** When the oldest rows expire, from now. Set by the log. */
  expireInMs: Record<Class, number> = { calls: brokerLimits.untakenMs, keys: brokerLimits.callersKeyMs };

  change({ worker, isCallersKey, open, finished, bytes }: UsageChange): void {
    const kind = isCallersKey ? 'keys' : 'calls';
    const held = this.#byWorker[kind].get(worker) ?? { rows: 0, bytes: 0 };
    for (const each of [held, this.#all[kind]]) {
      each.rows += open + finished;
      each.bytes += bytes;
    }
    if (held.rows <= 0) this.#byWorker[kind].delete(worker);
    else this.#byWorker[kind].set(worker, held);
    this.#open += open;
    this.#finished += finished;
  }

  /** Whether a reply to a worker's own key fits. */
  hasRoom(worker: string, bytes: number): boolean {
    const { ofOne, ofAll } = limitsOf.calls;
    const held = this.#byWorker.calls.get(worker)?.bytes ?? 0;
    return held + bytes <= ofOne.bytes && this.#all.calls.bytes + bytes <= ofAll.bytes;
  }

  /** `waitingBytes`: replies in memory that wait for room. */
  refusal(worker: string, isCallersKey: boolean, waitingBytes: number): HostError | undefined {
    const kind = isCallersKey ? 'keys' : 'calls';
    const { ofOne, ofAll } = limitsOf[kind];
    const held = this.#byWorker[kind].get(worker);
    const freeMs = Math.max(takeMs, Math.ceil(this.expireInMs[kind]));
    if (held && (held.rows >= ofOne.rows || held.bytes >= ofOne.bytes)) {
      const what = `${kind === 'keys' ? 'keys that callers chose' : 'calls whose replies are not taken'}`;
      const text = `worker '${worker}' has ${held.rows} ${what}, with ${held.bytes} bytes`;
      return full(kind === 'keys' ? 'worker_keys' : 'worker_calls', text, kind === 'keys' ? freeMs : takeMs);
    }
    const all = this.#all[kind];
    if (all.rows < ofAll.rows && all.bytes + (kind === 'calls' ? waitingBytes : 0) < ofAll.bytes) return undefined;
    const text = `the log of calls is full: ${all.rows} rows with ${all.bytes} bytes`;
    return full(kind === 'keys' ? 'all_keys' : 'all_replies', text, freeMs);
  }

  usage(): LogUsage {
    const { calls, keys } = this.#all;
    return { open: this.#open, finished: this.#finished, replyBytes: calls.bytes, callersKeys: keys.rows };
  }
}

const full = (reason: string, message: string, retryAfterMs: number): HostError =>
  new HostError('overloaded', message, {
    ...{ reason, retryAfterMs, execution: 'not_executed' },
    hint: reason.endsWith('keys') ? 'use fewer keys of your own' : 'take the replies of earlier calls first',
  });

/** The tool has run, and its reply was dropped at the deadline. */
export const noRoom = (actual: number): HostError =>
  new HostError('outcome_uncertain', 'the call has run, but the log had no room for its reply until its deadline', {
    ...{ reason: 'no_room', actual, execution: 'uncertain' },
    hint: 'look at its effect before sending it again',
  });
