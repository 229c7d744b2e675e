/**
 * Messages between the log and its thread, as plain data. Replies are joined in one buffer, which is transferred instead of copied.
 * Invariants: answers come in the order of their operations. Replies are taken out in the order in which they were put in.
 */
import { HostError, type HostErrorOptions } from '../../../kernel/errors.js';
import type { UsageChange } from '../call-bounds.js';
import type { CallState } from '../call-log.js';
import type { LockHolder } from './folder-lock.js';

export interface ThreadData {
  readonly folder: string;
  readonly owner: string;
  readonly holder: LockHolder;
}

/** A reply, or its length while it is in the joined buffer. */
export type Packed = Buffer | number;

interface Keyed {
  readonly worker: string;
  readonly epoch: string;
  readonly key: string;
}

export type Operation =
  | (Keyed & {
      readonly op: 'receive';
      readonly state: CallState;
      readonly digest: string;
      readonly isCallersKey: boolean;
      readonly expires: number;
      reply?: Packed | undefined;
    })
  | (Keyed & { readonly op: 'begin'; readonly version: number })
  | (Keyed & { readonly op: 'finish'; readonly owner: string; readonly state: CallState; reply?: Packed | undefined })
  | (Keyed & { readonly op: 'find' })
  | (Keyed & { readonly op: 'taken' })
  | { readonly op: 'purge'; readonly worker: string; readonly except: readonly string[] }
  /** Removes expired rows and returns free pages to the disk. */
  | { readonly op: 'tidy'; readonly isSweep: boolean };

export interface ThreadRow {
  readonly state: CallState;
  readonly owner: string;
  readonly digest: string;
  readonly attempts: number;
  readonly version: number;
  reply?: Packed | undefined;
}

export interface PlainError extends HostErrorOptions {
  readonly code: HostError['code'];
  readonly message: string;
}

/** `done`: the change was made, and the row has this version now. `row`: it was not, because of this row. */
export type Answer =
  | { readonly kind: 'done'; readonly version: number; readonly hasReply?: boolean; readonly digest?: string }
  | { readonly kind: 'row'; readonly row: ThreadRow }
  | { readonly kind: 'none' }
  | { readonly kind: 'error'; readonly error: PlainError };

export interface Batch {
  readonly operations: readonly Operation[];
  readonly bytes: Uint8Array;
  /** Wall time, for expiry alone. */
  readonly nowMs: number;
}

export type ToThread = Batch | { readonly close: true };

export type LogState = 'open' | 'full' | 'failed';

export interface Answered {
  readonly kind: 'answered';
  readonly answers: readonly Answer[];
  readonly bytes: Uint8Array;
  readonly changes: readonly UsageChange[];
  readonly state: LogState;
  /** Free pages are left to return. */
  readonly hasSpare: boolean;
  /** Time until the first rows expire, after a sweep. */
  readonly expireInMs?: { readonly calls: number; readonly keys: number } | undefined;
  readonly problems: readonly PlainError[];
}

export type FromThread =
  | Answered
  | { readonly kind: 'opened'; readonly changes: readonly UsageChange[]; readonly problems: readonly PlainError[] }
  | { readonly kind: 'refused'; readonly error: PlainError }
  | { readonly kind: 'failed'; readonly cause: string };

/** Replaces each reply by its length. `items` must not be used by others. */
export function pack(items: readonly (Operation | Answer)[]): Uint8Array {
  const holders = items.flatMap((item) => holderIn(item) ?? []);
  let length = 0;
  for (const { reply } of holders) length += (reply as Buffer).length;
  const bytes = new Uint8Array(length);
  let at = 0;
  for (const holder of holders) {
    const reply = holder.reply as Buffer;
    bytes.set(reply, at);
    at += reply.length;
    holder.reply = reply.length;
  }
  return bytes;
}

export function unpack(items: readonly (Operation | Answer)[], bytes: Uint8Array): void {
  let at = bytes.byteOffset;
  for (const item of items) {
    const holder = holderIn(item);
    if (!holder) continue;
    const length = holder.reply as number;
    holder.reply = Buffer.from(bytes.buffer as ArrayBuffer, at, length);
    at += length;
  }
}

function holderIn(item: Operation | Answer): { reply?: Packed | undefined } | undefined {
  const holder = 'op' in item ? item : item.kind === 'row' ? item.row : undefined;
  return holder && 'reply' in holder && holder.reply !== undefined ? holder : undefined;
}

export function toPlain({ code, message, hint, details }: HostError): PlainError {
  return { code, message, ...details, ...(hint === undefined ? {} : { hint }) };
}

export const fromPlain = ({ code, message, ...options }: PlainError): HostError =>
  new HostError(code, message, options);
