/**
 * What to do with one sending of a call, as a pure function of what the log knows about its key.
 * Not here: doing it (call-runner.ts), whether the worker may make the call (worker-call.ts).
 *
 * Invariant: a call that may have begun is begun again only if its tool may be repeated, and at most `brokerLimits.attempts` times.
 */
import type { HostError } from '../../kernel/errors.js';
import { type CallRow, type CallState, hasOutcome } from '../calls/call-log.js';
import { brokerLimits } from '../protocol/limits.js';
import type { SentBefore } from '../protocol/messages.js';

/** The facts about one sending. */
export interface Sending {
  readonly digest: string;
  readonly isCallersKey: boolean;
  readonly sentBefore: SentBefore | undefined;
  /** The tool may run twice. */
  readonly isRepeatable: boolean;
  /** Why the call must not run: denied, expired, cancelled, unknown tool. */
  readonly refusal: HostError | undefined;
}

/** No other sending of this key can exist: the worker made the key for this call and sends it for the first time. */
export const isSurelyNew = ({ isCallersKey, sentBefore }: Pick<Sending, 'isCallersKey' | 'sentBefore'>): boolean =>
  !isCallersKey && sentBefore === undefined;

/** The call may have begun in another store, whatever its row in this store says. */
export const wasSentElsewhere = (sentBefore: SentBefore | undefined, storeId: string): boolean =>
  sentBefore !== undefined && sentBefore.storeId !== storeId;

/** For a key that the log does not know: the call may have begun in another store, or in this one before it lost rows. */
export const mayHaveBegun = (sentBefore: SentBefore | undefined, storeId: string): boolean =>
  wasSentElsewhere(sentBefore, storeId) || sentBefore?.hasReceipt === true;

/** The first state of a call whose key the log does not know. Not for a call that is surely new and must not run: it gets no row. */
export function decideUnknown(
  { sentBefore, isRepeatable, refusal }: Sending,
  storeId: string,
  canBegin: boolean,
): Exclude<CallState, 'done'> {
  if (mayHaveBegun(sentBefore, storeId) && (!isRepeatable || refusal !== undefined)) return 'uncertain';
  if (refusal !== undefined) return 'refused';
  return canBegin ? 'running' : 'received';
}

/** Whether another host still has the call. `gone` also means: this host owns the row, but does not have the call in memory. */
export type Ownership = 'gone' | 'elsewhere';

export type KnownDecision =
  | 'conflict'
  /** The row has the outcome. */
  | 'reply'
  /** Another host has the call. */
  | 'elsewhere'
  /** Begin the call, even if it must not run: it is refused after the begin, because an owner that was only cut off may begin it too. */
  | 'begin'
  /** Record this outcome in place of the owner that is gone. */
  | 'uncertain';

/** For a key that is in the log and not in the memory of this host. */
export function decideKnown(row: CallRow, sending: Sending, ownership: Ownership): KnownDecision {
  if (row.digest !== sending.digest) return 'conflict';
  if (hasOutcome(row)) return 'reply';
  if (ownership === 'elsewhere') return 'elsewhere';
  if (row.state === 'received') return 'begin';
  const mayRunAgain = sending.isRepeatable && row.attempts < brokerLimits.attempts && sending.refusal === undefined;
  return mayRunAgain ? 'begin' : 'uncertain';
}
