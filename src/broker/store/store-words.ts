/**
 * What the store is asked and what it answers, as plain data: the same words inside the thread and on the way to it.
 * Not here: how they travel (broker-store.ts, store-thread.ts), what they do (mail-file.ts).
 *
 * Invariant: answers come in the order of the questions; what nobody waits for has none.
 */
import { HostError, type HostErrorOptions, isHostError } from '../../kernel/errors.js';
import type { CallClaim, Claimed } from '../ports.js';
import type { DeadLetter, Mail, MailboxSize, NewMail, Put, StoreState } from '../store-port.js';

const KiB = 1024;
const MiB = 1024 * KiB;

export interface StoreLimits {
  /** Mail in all mailboxes together, dead letters included; each mailbox has a bound of its own, which the broker keeps. */
  readonly mailCount: number;
  readonly mailBytes: number;
  /** Past them the oldest of whoever has most go. */
  readonly deadCount: number;
  readonly deadBytes: number;
  /** Rows whose checksum is wrong, kept for people; past it the oldest go. */
  readonly damagedCount: number;
  /** Keys of calls and their replies. At the bound new ones are refused: nothing is forgotten early. */
  readonly callCount: number;
  readonly callBytes: number;
  /** The same, of one mailbox: a worker that fills its own share takes nobody else's. */
  readonly callCountOfOne: number;
  readonly callBytesOfOne: number;
  /** Set aside on disk for what must still be written when it is full. */
  readonly reserveBytes: number;
  /** What waits for the thread; past it new mail is refused. */
  readonly waitingCount: number;
  readonly waitingBytes: number;
  /** One transaction: longer ones would make everybody wait, and what they need of the log is bounded by it. */
  readonly groupCount: number;
  readonly groupBytes: number;
  /** Of the log, after which it is written into the file. */
  readonly logBytes: number;
}

export const storeLimits: StoreLimits = {
  mailCount: 1_000_000,
  mailBytes: 4096 * MiB,
  deadCount: 10_000,
  deadBytes: 64 * MiB,
  damagedCount: 1_000,
  callCount: 5_000_000,
  callBytes: 1024 * MiB,
  callCountOfOne: 500_000,
  callBytesOfOne: 102 * MiB,
  reserveBytes: 16 * MiB,
  waitingCount: 100_000,
  waitingBytes: 64 * MiB,
  groupCount: 4_096,
  groupBytes: 4 * MiB,
  logBytes: 4 * MiB,
};

export type Operation =
  | { readonly op: 'put'; readonly mail: NewMail; readonly answers?: number | undefined }
  | { readonly op: 'read'; readonly mailbox: string; readonly afterSeq: number; readonly count: number; bytes: number }
  | { readonly op: 'request'; readonly to: string; readonly sender: string; readonly id: string }
  | { readonly op: 'handedOut' | 'remove' | 'revive' | 'dropDead'; readonly seq: number }
  | { readonly op: 'bury'; readonly seq: number; readonly reasons: readonly string[] }
  | { readonly op: 'sizes' | 'deadLetters' | 'flush' }
  | { readonly op: 'claim'; readonly claim: CallClaim }
  | { readonly op: 'find'; readonly mailbox: string; readonly key: string; readonly firstSentAt?: Date | undefined }
  | { readonly op: 'finish'; readonly mailbox: string; readonly key: string; readonly reply: Buffer }
  /** Of the keeper's own: forgets what may be forgotten, and sees whether there is room again. */
  | { readonly op: 'tidy' };

/** Nobody waits for these. */
const isUnanswered = { handedOut: true, remove: true, bury: true, tidy: true } as Readonly<Record<string, true>>;
export const isAnswered = ({ op }: Operation): boolean => isUnanswered[op] !== true;

/** An error on its way to another thread. */
export interface Refusal {
  readonly refused: HostErrorOptions & { readonly code: HostError['code']; readonly message: string };
}

export type Answer =
  | Refusal
  | Put
  | { readonly mails: readonly Mail[] }
  | { readonly sizes: readonly MailboxSize[] }
  | { readonly deadLetters: readonly DeadLetter[] }
  | { readonly revived: Mail | undefined }
  | { readonly isDropped: boolean }
  | { readonly claimed: Claimed }
  | { readonly done: true };

export function refusal(error: HostError): Refusal {
  const { code, message, hint, details } = error;
  return { refused: { code, message, ...details, ...(hint === undefined ? {} : { hint }) } };
}

export function errorOf({ refused: { code, message, ...options } }: Refusal): HostError {
  return new HostError(code, message, options);
}

export const toHostError = (error: unknown): HostError =>
  isHostError(error) ? error : failedError(error instanceof Error ? error.message : String(error), 'uncertain');

/** How long whoever was refused should wait: room is looked for more often than that. */
const fullRetryMs = 1_000;

export const fullError = (reason: 'disk_full' | 'mail_limit' | 'journal_limit', what: string): HostError =>
  new HostError('insufficient_storage', what, {
    reason,
    execution: 'not_executed',
    retryAfterMs: fullRetryMs,
    hint: reason === 'disk_full' ? 'make room on the disk of the broker' : 'wait until what is held was taken',
  });

/** What was under way may be kept; what comes afterwards is refused, so that nobody takes a dead disk for a lost connection. */
export const failedError = (cause: string, execution: 'uncertain' | 'not_executed'): HostError =>
  new HostError(
    execution === 'uncertain' ? 'transport' : 'insufficient_storage',
    `the broker's store failed and writes nothing more: ${cause}`,
    {
      reason: 'store_failed',
      execution,
      hint: 'see to the disk of the broker, then restart it: what it confirmed is kept',
    },
  );

/** Not in writer-lock.ts, which imports libsql: the main thread makes this error too. `owner`: the process that has the folder. */
export const inUse = (owner: { readonly pid: number } | undefined): HostError =>
  new HostError('invalid_spec', `the broker's store is in use${owner ? ` by process ${owner.pid}` : ''}`, {
    field: 'stateDir',
    reason: 'in_use',
    hint: 'end the other broker, or give this one a folder of its own',
  });

export const closedError = (): HostError =>
  new HostError('transport', "the broker's store is closed", {
    reason: 'store_closed',
    execution: 'not_executed',
    hint: 'the broker is ending; send it again when it is back',
  });

export interface StoreEvents {
  onProblem(error: HostError): void;
  onState(state: StoreState): void;
}
