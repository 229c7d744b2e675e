/**
 * What the embedded broker needs of its disk. Implemented by store/, on SQLite in a thread of its own.
 *
 * Invariants: `put` resolves after the sync that holds it, never before; after a failed sync nothing is promised and none is
 * tried again; order is that of `seq`, which the store gives and never gives twice.
 */
import type { Sender } from './ports.js';

export interface NewMail {
  readonly to: string;
  readonly from: Sender;
  readonly id: string;
  readonly kind: 'request' | 'reply';
  readonly sentAtMs: number;
  /** Wall time; undefined: it is kept until it is taken. */
  readonly expiresAtMs: number | undefined;
  readonly body: Buffer;
}

export interface Mail extends NewMail {
  readonly seq: number;
  /** So far. */
  readonly deliveries: number;
}

export interface DeadLetter {
  readonly seq: number;
  readonly to: string;
  readonly from: Sender;
  readonly id: string;
  readonly kind: 'request' | 'reply';
  readonly sentAtMs: number;
  readonly diedAtMs: number;
  readonly bytes: number;
  readonly reasons: readonly string[];
}

/** `seq`: of what was put, or is held instead. */
export interface Put {
  readonly seq: number;
  readonly isNew: boolean;
  readonly isAnswered?: true;
}

export interface MailboxSize {
  readonly mailbox: string;
  readonly count: number;
  readonly bytes: number;
}

/** `full`: nothing new is taken, what ends or removes something still is. `failed`: nothing more is written until a restart. */
export type StoreState = 'open' | 'full' | 'failed';

export interface MailStore {
  readonly state: StoreState;
  /** Wall time; only of one that began in the place of one that is gone: what was sent before may have been handed out. */
  readonly beganAtMs?: number | undefined;
  /** Everything held, at start. */
  sizes(): Promise<readonly MailboxSize[]>;
  /**
   * Resolves when it is on disk. The same (to, from.mailbox, id, kind) is held once: `isNew` is false then. A request whose reply
   * is still held for its sender is not taken either (`isAnswered`): that reply is what became of it. Rejects with
   * `insufficient_storage` when it surely is not held. `answers` is the request that it replies to, which goes with the same
   * commit: either both or neither is so.
   */
  put(mail: NewMail, answers?: number): Promise<Put>;
  /** In order, above `afterSeq`, at most so many and so large; at least one where there is one. What is damaged is set aside and told. */
  read(mailbox: string, afterSeq: number, limits: { count: number; bytes: number }): Promise<readonly Mail[]>;
  /** A request that is held. */
  find(to: string, sender: string, id: string): Promise<Mail | undefined>;
  /** Counts a handing out; written with the next commit, which nobody waits for. So are the next two. */
  handedOut(seq: number): void;
  remove(seq: number): void;
  bury(seq: number, reasons: readonly string[]): void;
  deadLetters(): Promise<readonly DeadLetter[]>;
  /** Back into its mailbox as if new, once: the new mail; undefined when it is not there (any more). */
  revive(seq: number): Promise<Mail | undefined>;
  dropDead(seq: number): Promise<boolean>;
  /** Resolves when everything asked for so far is on disk. */
  flush(): Promise<void>;
  close(): Promise<void>;
}
