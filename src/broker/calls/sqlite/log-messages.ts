/**
 * Messages between the log and its thread, as plain data.
 * Invariant: answers come in the order of their operations. Acknowledgements and tidying get no answer, because no caller waits for one.
 */
import type { HostError } from '../../../kernel/errors.js';
import type { RowClass, UsageChange } from '../call-bounds.js';
import type { CallId, CallOutcome, CallRow, NewCall } from '../call-log.js';

export interface ThreadData {
  /** Undefined: the rows are in memory and end with the thread. */
  readonly folder: string | undefined;
  readonly owner: string;
  readonly startedAt: string;
}

/** Each reply has its own ArrayBuffer: a structured clone copies the whole buffer, not only the view. */
type Reply = Uint8Array | undefined;

type Receive = { readonly op: 'receive'; readonly expires: number; readonly reply: Reply };
type Finish = { readonly op: 'finish'; readonly owner: string; readonly reply: Reply };

export type Operation =
  | (CallId & Pick<NewCall, 'state' | 'digest' | 'isCallersKey'> & Receive)
  | (CallId & { readonly op: 'begin'; readonly version: number })
  | (CallId & Pick<CallOutcome, 'state' | 'isCallersKey'> & Finish)
  | (CallId & { readonly op: 'find' | 'ack' })
  /** The rows of one worker, or of all workers. `except`: the workers or epochs whose rows stay, each as `WORKER` or `WORKER EPOCH`. */
  | { readonly op: 'purge'; readonly worker: string | undefined; readonly except: readonly string[] }
  /** Removes expired rows and returns free pages to the disk. */
  | { readonly op: 'tidy'; readonly isSweep: boolean };

export type ThreadRow = Omit<CallRow, 'reply'> & { readonly reply: Reply };

/** `done`: the change was made. `row`: the change was not made, because this row conflicts with it. `full`: the disk has no room for it. */
export type Answer = { readonly kind: 'done' | 'none' | 'full' } | { readonly kind: 'row'; readonly row: ThreadRow };

export interface Batch {
  readonly operations: readonly Operation[];
  /** Wall time, for expiry alone. */
  readonly nowMs: number;
}

/** What the thread found and did since its last message. */
export interface Written {
  readonly answers: readonly Answer[];
  readonly changes: readonly UsageChange[];
  /** The disk has no room: new calls are refused. */
  readonly isFull: boolean;
  /** The file has more free pages to return to the disk. */
  readonly hasSpare: boolean;
  /** After a sweep: when the first finished row of each worker expires, by the wall clock. */
  readonly expiries?: Readonly<Record<RowClass, ReadonlyMap<string, number>>> | undefined;
}

/** An error as text for `readError`, because a structured clone of an error has no code and no details. */
export type ErrorText = string;
export const textOf = (error: HostError): ErrorText => JSON.stringify(error.toJSON());

export type ToThread = Batch | { readonly close: true };

export type FromThread =
  /** The first one says what the file holds, and that the log is open. */
  | (Written & { readonly kind: 'written'; readonly problems: readonly ErrorText[] })
  | { readonly kind: 'refused'; readonly error: ErrorText }
  | { readonly kind: 'failed'; readonly cause: string };

/** Replies from this size on are transferred. Copying a smaller reply is cheaper than transferring its memory. */
const transferBytes = 64 * 1024;

/** The buffers of large replies: they are transferred to the other thread instead of copied. */
export const transfersOf = (items: readonly (Operation | Answer)[]): ArrayBuffer[] =>
  items.flatMap((item) => {
    const holder = 'kind' in item && item.kind === 'row' ? item.row : item;
    const reply = 'reply' in holder ? holder.reply : undefined;
    return reply && reply.length >= transferBytes ? [reply.buffer as ArrayBuffer] : [];
  });
