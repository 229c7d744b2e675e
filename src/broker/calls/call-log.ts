/**
 * The log of calls: one row per call, durable, with compare-and-set. Implemented on SQLite (calls/sqlite/) for one host and on NATS KV
 * (nats/) for several; both pass test/contract/broker/call-log.test.ts.
 * Not here: what the rows mean for a call (service/call-decision.ts).
 *
 * Invariants: a promise resolves when the change is durable. An outcome of a key that the worker made needs only to survive the end of this
 * process, not a loss of power. A rejected promise means that the change may or may not have been made.
 * If two changes expect the same version of a row, one is made, and the other gets the changed row.
 */
import type { LogUsage } from '../../host/broker-status.js';
import type { HostError } from '../../kernel/errors.js';

/** A key is unique within one epoch of one worker. A later worker of the same name has another epoch. */
export interface CallId {
  readonly worker: string;
  readonly epoch: string;
  readonly key: string;
}

/** `received`: not begun. `running`: begun by its owner. The others are outcomes and final. */
export const callStates = ['received', 'running', 'done', 'uncertain', 'refused'] as const;
export type CallState = (typeof callStates)[number];

export const hasOutcome = ({ state }: { readonly state: CallState }): boolean =>
  state !== 'received' && state !== 'running';

export interface CallRow {
  readonly state: CallState;
  /** `CallLog.owner` of the host that received or began the call. */
  readonly owner: string;
  /** Digest of server, tool and arguments. */
  readonly digest: string;
  /** How many times the call was begun. */
  readonly attempts: number;
  /** Body of the outcome (protocol/messages.ts). Undefined while there is none, and after a purge. */
  readonly reply: Buffer | undefined;
  /** Changes with each change of the row. */
  readonly version: number;
}

export interface NewCall {
  readonly id: CallId;
  readonly digest: string;
  /** The caller chose the key: the row is kept for a day. Otherwise it is removed when its reply was acknowledged. */
  readonly isCallersKey: boolean;
  /** Time left, from now. */
  readonly deadlineMs: number;
  /** State of the new row; `uncertain` and `refused` come with a reply. */
  readonly state: CallState;
  readonly reply?: Buffer | undefined;
}

export interface CallOutcome {
  readonly state: 'done' | 'uncertain' | 'refused';
  readonly reply: Buffer;
  /** As in `NewCall`: replies to callers' keys have their own bound. */
  readonly isCallersKey: boolean;
  /** Time left, from now. If there is no room for the reply, it waits at most this long. */
  readonly deadlineMs: number;
}

export interface Received {
  /** False: the key was in the log already, and `row` is its row. */
  readonly isNew: boolean;
  readonly row: CallRow;
}

export interface CallLog {
  /** Random id of this start of the store. Workers repeat it with each request that they send again. */
  readonly storeId: string;
  /** Id of this start of this host, by which rows name it. */
  readonly owner: string;
  /** Why a new call of this worker cannot be accepted now; undefined if it can. After its `retryAfterMs` there should be room. */
  refusal(worker: string, isCallersKey: boolean): HostError | undefined;
  /** Inserts the row, or returns the row that has the key already. A new row in the state `running` counts as one attempt. */
  receive(call: NewCall): Promise<Received>;
  /**
   * If the row still has this version: sets the state to `running` and this host as the owner, and counts one more attempt. Otherwise
   * returns the present row; undefined if it was removed.
   */
  begin(id: CallId, version: number): Promise<'begun' | CallRow | undefined>;
  /**
   * Writes the outcome if `owner` still owns the row and it has none; returns the outcome that stays, or undefined if the row was removed.
   * A reply for which there is no room waits until the deadline of the call, and is then recorded as `uncertain`. A reply to a
   * caller's key does not wait, because such replies stay for a day: it is returned, and not kept.
   */
  finish(id: CallId, owner: string, outcome: CallOutcome): Promise<CallRow | undefined>;
  find(id: CallId): Promise<CallRow | undefined>;
  /**
   * The worker has the reply. Not durable: after a crash the log may have the reply again. A row with a caller's key is removed only if its
   * state is `refused`, because the call did not run. A log that several hosts share removes rows only after the deadline, when no host can
   * still have a copy of the request.
   */
  acknowledge(id: CallId): void;
  /**
   * Removes the calls of a worker, in all epochs but `except`. Calls that began keep a row without a reply, which only `receive` returns.
   */
  purge(worker: string, except?: readonly string[]): Promise<void>;
  /** Whether the process that owns a row has ended. Never true for this host. */
  isGone(owner: string): Promise<boolean>;
  usage(): LogUsage;
  close(): Promise<void>;
}
