/**
 * The journal of calls as a table: which key was begun, by which start of the process, and what was replied.
 * Not here: transactions (mail-file.ts), what a call is and whether it may be repeated (service/).
 *
 * Invariants: a key is given to one who runs it, and to nobody else while its row is there; a row goes only after its time, and
 * never while this process runs its call; at the bound new keys are refused and none is forgotten for them; the first reply stays.
 * One mailbox has a bound of its own, well below that of all: who fills it is refused, and nobody else. A journal that began in
 * the place of one that is gone does not speak for what was sent before: that may have run.
 */
import type Database from 'libsql';
import { HostError } from '../../kernel/errors.js';
import { beganDoubtMs, type CallClaim, type Claimed } from '../ports.js';
import { callSum, type SummedCall } from './mail-checksum.js';
import { fullError, type StoreLimits } from './store-words.js';

export const callsSchema = `
  CREATE TABLE IF NOT EXISTS calls (
    mailbox TEXT NOT NULL, call_key TEXT NOT NULL, hash TEXT NOT NULL, boot INTEGER NOT NULL,
    remember_until INTEGER NOT NULL, is_done INTEGER NOT NULL, sum INTEGER NOT NULL, reply BLOB);
  CREATE UNIQUE INDEX IF NOT EXISTS calls_key ON calls (mailbox, call_key);
  CREATE INDEX IF NOT EXISTS calls_until ON calls (remember_until);
`;

/** Only there in a journal that began in the place of another: when it did. What came before is not known any more. */
export const beganSchema = (nowMs: number): string => `
  CREATE TABLE IF NOT EXISTS journal_began (at_ms INTEGER NOT NULL);
  INSERT INTO journal_began VALUES (${Math.ceil(nowMs)});
`;

/** What a row takes beside its texts and its reply, about. */
const rowBytes = 256;
/** Forgotten in one go, so that nobody waits for it long. */
const forgetCount = 5_000;

const sizeOf = `(${rowBytes} + length(mailbox) + length(call_key) + length(hash) + coalesce(length(reply), 0))`;

/** What became of a key. */
export type Found = Exclude<Claimed, { kind: 'mine' | 'conflict' }>;

interface CallRow extends SummedCall {
  readonly is_done: number;
  readonly sum: number;
  readonly reply: Buffer | null;
}

/** What one mailbox, or all, hold. */
interface Held {
  count: number;
  bytes: number;
}

export class CallsTable {
  readonly #database: Database.Database;
  readonly #limits: StoreLimits;
  readonly #boot: number;
  readonly #onProblem: (error: HostError) => void;
  readonly #all: Held = { count: 0, bytes: 0 };
  /** Of mailboxes that hold any, so no more than there are keys. */
  readonly #byMailbox = new Map<string, Held>();
  #beganMs = Number.NEGATIVE_INFINITY;
  readonly #insert: Database.Statement;
  readonly #find: Database.Statement;
  readonly #update: Database.Statement;
  readonly #expired: Database.Statement;
  readonly #remove: Database.Statement;

  /** `boot` names this start of the process among all others. */
  constructor(database: Database.Database, limits: StoreLimits, boot: number, onProblem: (error: HostError) => void) {
    this.#database = database;
    this.#limits = limits;
    this.#boot = boot;
    this.#onProblem = onProblem;
    this.#insert = database.prepare('INSERT INTO calls VALUES (?, ?, ?, ?, ?, 0, ?, NULL) ON CONFLICT DO NOTHING');
    this.#find = database.prepare('SELECT * FROM calls WHERE mailbox = ? AND call_key = ?');
    this.#update = database.prepare(
      'UPDATE calls SET boot = ?, remember_until = ?, is_done = ?, sum = ?, reply = ? WHERE mailbox = ? AND call_key = ?',
    );
    this.#expired = database.prepare(
      `SELECT rowid AS at, mailbox, ${sizeOf} AS bytes FROM calls WHERE remember_until < ? AND (is_done = 1 OR boot <> ?) LIMIT ?`,
    );
    this.#remove = database.prepare('DELETE FROM calls WHERE rowid = ?');
  }

  /** Only of one that began in the place of another. */
  get beganMs(): number | undefined {
    return Number.isFinite(this.#beganMs) ? this.#beganMs : undefined;
  }

  load(): void {
    this.#beganMs = this.#readBegan();
    const held = this.#database
      .prepare(`SELECT mailbox, count(*) AS count, sum(${sizeOf}) AS bytes FROM calls GROUP BY mailbox`)
      .all([]) as (Held & { mailbox: string })[];
    Object.assign(this.#all, { count: 0, bytes: 0 });
    this.#byMailbox.clear();
    for (const { mailbox, count, bytes } of held) this.#holds(mailbox, count, bytes);
  }

  claim(claim: CallClaim, mayGrow: boolean, nowMs: number): Claimed {
    // Most are new: those are not looked for first.
    const isBeforeUs = this.#isBefore(claim.firstSentAt);
    const mayBegin = mayGrow && (!isBeforeUs || claim.isRepeatable);
    if (mayBegin && this.#hasRoom(claim.mailbox) && this.#begin(claim)) return { kind: 'mine' };
    const found = this.#rowOf(claim.mailbox, claim.key);
    if (found === undefined && isBeforeUs && !claim.isRepeatable) return { kind: 'lost' };
    if (found === undefined) return this.#beginInsteadOfOthers(claim, mayGrow, nowMs);
    if (found === 'damaged') return { kind: 'lost' };
    if (found.hash !== claim.hash) return { kind: 'conflict' };
    const until = Math.max(found.remember_until, claim.rememberUntil.getTime());
    if (mayGrow && until > found.remember_until) this.#write({ ...found, remember_until: until });
    if (found.reply !== null) return { kind: 'done', reply: found.reply };
    if (found.boot === this.#boot) return { kind: 'running' };
    if (!claim.isRepeatable) return { kind: 'lost' };
    if (!mayGrow) throw fullError('disk_full', 'the disk of the broker is full');
    this.#write({ ...found, boot: this.#boot, remember_until: until });
    return { kind: 'mine' };
  }

  find(mailbox: string, key: string, firstSentAt?: Date): Found | undefined {
    const found = this.#rowOf(mailbox, key);
    if (found === undefined) return this.#isBefore(firstSentAt) ? { kind: 'lost' } : undefined;
    if (found === 'damaged') return { kind: 'lost' };
    if (found.reply !== null) return { kind: 'done', reply: found.reply };
    return { kind: found.boot === this.#boot ? 'running' : 'lost' };
  }

  finish(mailbox: string, key: string, reply: Buffer): void {
    const found = this.#rowOf(mailbox, key, 'quiet');
    if (found === undefined)
      throw new HostError('expired', 'the key of the call was forgotten: its time is over', {
        reason: 'unknown_key',
        hint: 'a call is claimed before it is finished',
      });
    if (found === 'damaged') {
      // What it was is not known any more; that it is over now is.
      const row = this.#find.get([mailbox, key]) as CallRow;
      this.#holds(mailbox, 0, -(row.reply?.length ?? 0));
      this.#write({ ...row, mailbox, call_key: key, boot: this.#boot, reply });
    } else if (found.reply === null) this.#write({ ...found, reply });
    else return;
    this.#holds(mailbox, 0, reply.length);
  }

  /** Its request may come again until then. Nothing for a key that nobody claimed. */
  remember(mailbox: string, key: string, untilMs: number): void {
    const found = this.#rowOf(mailbox, key);
    if (found === undefined || found === 'damaged' || found.remember_until >= untilMs) return;
    this.#write({ ...found, remember_until: untilMs });
  }

  /** Forgets what may be forgotten, a bounded number. */
  forget(nowMs: number): void {
    for (const { at, mailbox, bytes } of this.#expired.all([nowMs, this.#boot, forgetCount]) as {
      at: number;
      mailbox: string;
      bytes: number;
    }[]) {
      this.#remove.run([at]);
      this.#holds(mailbox, -1, -bytes);
    }
  }

  #beginInsteadOfOthers(claim: CallClaim, mayGrow: boolean, nowMs: number): Claimed {
    if (!mayGrow) throw fullError('disk_full', 'the disk of the broker is full');
    this.forget(nowMs);
    if (this.#hasRoom(claim.mailbox) && this.#begin(claim)) return { kind: 'mine' };
    const { callCount, callBytes, callCountOfOne, callBytesOfOne } = this.#limits;
    if (this.#isFull(claim.mailbox))
      throw fullError(
        'journal_limit',
        `mailbox '${claim.mailbox}' has its share of the journal of calls: ${callCountOfOne} keys or ${callBytesOfOne} bytes`,
      );
    throw fullError('journal_limit', `the journal of calls is full: ${callCount} keys or ${callBytes} bytes`);
  }

  #isBefore(firstSentAt: Date | undefined): boolean {
    return firstSentAt !== undefined && firstSentAt.getTime() < this.#beganMs + beganDoubtMs;
  }

  #readBegan(): number {
    const named = "SELECT 1 FROM sqlite_master WHERE name = 'journal_began'";
    if (this.#database.prepare(named).get([]) === undefined) return Number.NEGATIVE_INFINITY;
    const { at } = this.#database.prepare('SELECT max(at_ms) AS at FROM journal_began').get([]) as {
      at: number | null;
    };
    return at ?? Number.NEGATIVE_INFINITY;
  }

  /** False when there is such a key. */
  #begin({ mailbox, key, hash, rememberUntil }: CallClaim): boolean {
    const until = rememberUntil.getTime();
    const row = { mailbox, call_key: key, hash, boot: this.#boot, remember_until: until, reply: null };
    if (this.#insert.run([mailbox, key, hash, this.#boot, until, callSum(row)]).changes === 0) return false;
    this.#holds(mailbox, 1, rowBytes + mailbox.length + key.length + hash.length);
    return true;
  }

  #hasRoom(mailbox: string): boolean {
    const { callCount, callBytes } = this.#limits;
    return this.#all.count < callCount && this.#all.bytes < callBytes && !this.#isFull(mailbox);
  }

  #isFull(mailbox: string): boolean {
    const held = this.#byMailbox.get(mailbox);
    const { callCountOfOne, callBytesOfOne } = this.#limits;
    return held !== undefined && (held.count >= callCountOfOne || held.bytes >= callBytesOfOne);
  }

  #holds(mailbox: string, count: number, bytes: number): void {
    const held = this.#byMailbox.get(mailbox) ?? { count: 0, bytes: 0 };
    held.count += count;
    held.bytes += bytes;
    this.#all.count += count;
    this.#all.bytes += bytes;
    if (held.count === 0) this.#byMailbox.delete(mailbox);
    // Its first.
    else if (held.count === count) this.#byMailbox.set(mailbox, held);
  }

  #write(row: SummedCall): void {
    const { mailbox, call_key, boot, remember_until, reply } = row;
    this.#update.run([boot, remember_until, reply === null ? 0 : 1, callSum(row), reply, mailbox, call_key]);
  }

  #rowOf(mailbox: string, key: string, how?: 'quiet'): CallRow | 'damaged' | undefined {
    const row = this.#find.get([mailbox, key]) as CallRow | undefined;
    if (row === undefined) return undefined;
    if (callSum(row) === row.sum && row.is_done === (row.reply === null ? 0 : 1)) return row;
    if (how !== 'quiet')
      this.#onProblem(
        new HostError('protocol_error', 'a row of the journal of calls is damaged: its call counts as lost', {
          reason: 'damaged_call',
          execution: 'uncertain',
          hint: 'see to the disk of the broker',
        }),
      );
    return 'damaged';
  }
}
