/** One call of a worker, from its start to its outcome. */
import type { Cancel } from '../../kernel/clock.js';
import type { Execution, HostError } from '../../kernel/errors.js';
import { type CallRequest, requestDigest } from '../protocol/messages.js';
import type { ReplyBody } from '../protocol/reply-body.js';
import type { Receipt, WorkerConnection } from './connection.js';

export type NewCall = Omit<CallRequest, 'deadlineMs' | 'sentBefore'>;
export type CallResultBody = Extract<ReplyBody, { kind: 'result' }>;

export interface CallWaiter {
  readonly deadlineAtMs: number;
  readonly onProgress: ((params: Buffer) => void) | undefined;
  readonly done: (outcome: CallResultBody | HostError) => void;
}

/** One call. Several callers wait for it if they gave the same key. */
export interface OpenCall {
  /** Gets another key when a host that stops hands the call back. */
  call: NewCall;
  readonly waiters: Map<CallWaiter, Cancel>;
  /** The store to which it was first sent; undefined: no sending can have arrived. */
  firstStoreId: string | undefined;
  receipt: Receipt | undefined;
  /** The connection over which it is being sent. */
  sendingOver: WorkerConnection | undefined;
  cancelTimer: Cancel | undefined;
}

/** It has a receipt, and is not about to be sent again. */
export const isWaiting = (open: OpenCall | undefined): boolean =>
  open?.receipt !== undefined && open.sendingOver === undefined && open.cancelTimer === undefined;

export const executionOf = ({ firstStoreId }: OpenCall): Execution =>
  firstStoreId === undefined ? 'not_executed' : 'uncertain';

export function latestDeadline({ waiters }: OpenCall): number {
  let latestMs = Number.NEGATIVE_INFINITY;
  for (const { deadlineAtMs } of waiters.keys()) latestMs = Math.max(latestMs, deadlineAtMs);
  return latestMs;
}

/** A reply to an earlier call with the same key, which was cancelled, is none to this one. */
export const isReplyTo = ({ call }: OpenCall, digest: string | undefined): boolean =>
  !call.isCallersKey || digest === undefined || digest === requestDigest(call.server, call.tool, call.args);

export const isSameCall = (one: NewCall, other: NewCall): boolean =>
  one.server === other.server && one.tool === other.tool && one.args.equals(other.args);

export const unsent = {
  ...{ firstStoreId: undefined, receipt: undefined, sendingOver: undefined, cancelTimer: undefined },
};
