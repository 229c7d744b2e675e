/**
 * The store without its thread: operations in, one transaction, answers out. Everything here waits for the disk.
 * Not here: the thread and the way to it (store-thread.ts, broker-store.ts), rows (mail-table.ts, calls-table.ts).
 *
 * Invariants: answers leave after the sync that holds what they say. A commit that failed for anything but room is final: `run`
 * throws then and ever after, and nothing is written or synced. On a full disk nothing new is taken; what ends something is
 * written out of the reserve, and where even that is used up, kept in memory until there is room.
 */
import { randomBytes } from 'node:crypto';
import path from 'node:path';
import type Database from 'libsql';
import { type HostError, isHostError } from '../../kernel/errors.js';
import { keyKeptMsMin, ttlMsMax } from '../ports.js';
import type { Mail, NewMail, StoreState } from '../store-port.js';
import { beganSchema, CallsTable, callsSchema } from './calls-table.js';
import { MailTable, mailSchema } from './mail-table.js';
import { ReserveFile } from './reserve-file.js';
import { isFull, moveFailed, openStoreFile, sync } from './store-file.js';
import { type Answer, fullError, isAnswered, type Operation, refusal, type StoreLimits } from './store-words.js';

/** What even a small transaction writes: whole pages. */
const transactionBytes = 12 * 1024;

/** What a transaction may do: everything, nothing that needs lasting room, or no write at all. */
type Room = 'any' | 'reserve' | 'none';

export interface MailFileOptions {
  readonly folder: string;
  readonly limits: StoreLimits;
  readonly nowMs: number;
  readonly onProblem: (error: HostError) => void;
}

export class MailFile {
  readonly #folder: string;
  readonly #limits: StoreLimits;
  readonly #database: Database.Database;
  readonly #mail: MailTable;
  readonly #calls: CallsTable;
  readonly #reserve: ReserveFile;
  readonly #begin: Database.Statement;
  readonly #commit: Database.Statement;
  /** What nobody waits for and could not be written. Bound: rows that are held, and a few words about each. */
  #owed: Operation[] = [];
  /** Written to the log since it was last written into the file, about. */
  #logged = 0;
  #state: StoreState = 'open';
  /** There is not even room for what ends something. */
  #isUsedUp = false;
  #failure: unknown;

  /** The folder is ours alone, and locked. */
  constructor({ folder, limits, nowMs, onProblem }: MailFileOptions) {
    this.#folder = folder;
    this.#limits = limits;
    this.#reserve = new ReserveFile(path.join(folder, 'broker.reserve'), limits.reserveBytes);
    const boot = randomBytes(6).readUIntBE(0, 6);
    const schema = { tables: mailSchema + callsSchema, inPlaceOfAnother: beganSchema(nowMs) };
    const opened = openStoreFile(folder, schema, onProblem, (database) => {
      const mail = new MailTable(database, limits, onProblem);
      const calls = new CallsTable(database, limits, boot, onProblem);
      calls.load();
      return { database, mail, calls, damaged: mail.load() };
    });
    this.#database = opened.database;
    this.#mail = opened.mail;
    this.#calls = opened.calls;
    this.#begin = this.#database.prepare('BEGIN');
    this.#commit = this.#database.prepare('COMMIT');
    try {
      this.#takeOver(opened.damaged, nowMs);
    } catch (error) {
      throw this.#fail(error);
    }
  }

  #takeOver(damaged: readonly number[], nowMs: number): void {
    if (!this.#reserve.make()) this.#state = 'full';
    // What an earlier process left in the log is made part of the file before anything is added to it.
    this.#writeLogIntoFile('TRUNCATE');
    // SQLite does this too, for a log it made, and does not mind when it fails.
    sync(this.#folder);
    if (damaged.length === 0) return;
    try {
      this.#transaction(() => {
        for (const seq of damaged) this.#mail.setAside(seq, nowMs);
      });
    } catch (error) {
      // No room to move them: they stay where they are, and are not handed out.
      this.#takeBack(error);
    }
  }

  get state(): StoreState {
    return this.#state;
  }

  /** As in the port. */
  get beganAtMs(): number | undefined {
    return this.#calls.beganMs;
  }

  /** Throws when the store failed, and ever after. */
  run(operations: readonly Operation[], nowMs: number): Answer[] {
    if (this.#state === 'failed') throw this.#failure;
    try {
      const answers = this.#attempt(operations, nowMs);
      if (this.#logged >= this.#limits.logBytes) this.#writeLogIntoFile('PASSIVE');
      return answers;
    } catch (error) {
      throw this.#fail(error);
    }
  }

  /** The log becomes part of the file. Nothing after this. Returns why it could not be, when it could not. */
  close(): unknown {
    if (this.#state === 'failed') return undefined;
    try {
      this.#writeLogIntoFile('TRUNCATE');
      this.#database.close();
      return undefined;
    } catch (error) {
      return this.#fail(error);
    }
  }

  #fail(error: unknown): unknown {
    this.#state = 'failed';
    this.#failure = error;
    moveFailed(this.#folder);
    return error;
  }

  #attempt(operations: readonly Operation[], nowMs: number): Answer[] {
    if (this.#state === 'open') {
      try {
        return this.#runAll(operations, 'any', nowMs);
      } catch (error) {
        this.#takeBack(error);
      }
      this.#state = 'full';
      this.#reserve.giveUp();
    }
    // Known to be used up; whether it still is, is seen when room is looked for.
    if (this.#isUsedUp && !operations.some(({ op }) => op === 'tidy')) return this.#runAll(operations, 'none', nowMs);
    this.#isUsedUp = false;
    try {
      return this.#runAll(operations, 'reserve', nowMs);
    } catch (error) {
      this.#takeBack(error);
    }
    this.#reserve.giveUp();
    this.#writeLogIntoFile('PASSIVE');
    try {
      return this.#runAll(operations, 'reserve', nowMs);
    } catch (error) {
      this.#takeBack(error);
    }
    this.#isUsedUp = true;
    return this.#runAll(operations, 'none', nowMs);
  }

  /** Only for want of room; anything else is final. */
  #takeBack(error: unknown): void {
    if (!isFull(error)) throw error;
    if (this.#database.inTransaction) this.#database.exec('ROLLBACK');
    this.#mail.load();
    this.#calls.load();
  }

  #runAll(operations: readonly Operation[], room: Room, nowMs: number): Answer[] {
    const owed = this.#owed;
    const answers: Answer[] = [];
    const all = owed.length > 0 && room !== 'none' ? [...owed, ...operations] : operations;
    let hasTidied = false;
    this.#transaction(() => {
      for (const operation of all) {
        if (operation.op === 'tidy') hasTidied = true;
        const answer = this.#answer(operation, room, nowMs);
        if (isAnswered(operation)) answers.push(answer as Answer);
      }
      if (room !== 'none') this.#mail.settle();
    });
    if (room !== 'none') this.#owed = [];
    if (hasTidied && this.#state === 'full' && this.#reserve.make()) this.#state = 'open';
    return answers;
  }

  #answer(operation: Operation, room: Room, nowMs: number): Answer | undefined {
    try {
      return room === 'none' ? this.#readOnly(operation, nowMs) : this.#perform(operation, room === 'any', nowMs);
    } catch (error) {
      // Refused, and nothing was written for it.
      if (isHostError(error)) return refusal(error);
      throw error;
    }
  }

  #perform(operation: Operation, mayGrow: boolean, nowMs: number): Answer | undefined {
    this.#logged += 64;
    switch (operation.op) {
      case 'put':
        this.#logged += operation.mail.body.length + 512;
        return this.#put(operation.mail, operation.answers, mayGrow);
      case 'read':
        return {
          mails: this.#mail.read(operation.mailbox, operation.afterSeq, operation.count, operation.bytes, nowMs),
        };
      case 'request':
        return { mails: this.#requests(operation, nowMs) };
      case 'handedOut':
        return void this.#mail.handedOut(operation.seq);
      case 'remove':
        return void this.#mail.remove(operation.seq);
      case 'bury':
        return void this.#mail.bury(operation.seq, operation.reasons, nowMs);
      case 'revive':
        return { revived: this.#revive(operation.seq, mayGrow, nowMs) };
      case 'dropDead':
        return { isDropped: this.#mail.dropDead(operation.seq) };
      case 'sizes':
        return { sizes: this.#mail.sizes() };
      case 'deadLetters':
        return { deadLetters: this.#mail.deadLetters() };
      case 'claim':
        this.#logged += 512;
        return { claimed: this.#calls.claim(operation.claim, mayGrow, nowMs) };
      case 'find': {
        const claimed = this.#calls.find(operation.mailbox, operation.key, operation.firstSentAt);
        return claimed ? { claimed } : { done: true };
      }
      case 'finish':
        this.#logged += operation.reply.length;
        this.#calls.finish(operation.mailbox, operation.key, operation.reply);
        return { done: true };
      case 'flush':
        return { done: true };
      case 'tidy':
        return void this.#calls.forget(nowMs);
      default:
        return operation satisfies never;
    }
  }

  /** What became of it before is remembered for as long as it may be handed out now. */
  #revive(seq: number, mayGrow: boolean, nowMs: number): Mail | undefined {
    const mail = this.#mail.revive(seq, mayGrow, nowMs);
    if (mail?.kind !== 'request') return mail;
    const { from, id, expiresAtMs = nowMs + ttlMsMax } = mail;
    this.#calls.remember(from.mailbox, id, expiresAtMs + keyKeptMsMin);
    return mail;
  }

  /** A reply that is refused leaves its request where it is. */
  #put(mail: NewMail, answers: number | undefined, mayGrow: boolean): Answer {
    const kept = this.#mail.put(mail, mayGrow);
    if (answers !== undefined) this.#mail.remove(answers);
    return kept;
  }

  #requests({ to, sender, id }: Operation & { op: 'request' }, nowMs: number | undefined): Mail[] {
    const found = this.#mail.request(to, sender, id, nowMs);
    return found ? [found] : [];
  }

  /** Not even the reserve is left: what can be answered is, what nobody waits for is owed, the rest is refused. */
  #readOnly(operation: Operation, nowMs: number): Answer | undefined {
    switch (operation.op) {
      case 'handedOut':
      case 'remove':
      case 'bury':
        this.#owed.push(operation);
        return undefined;
      case 'finish':
      case 'revive':
      case 'dropDead':
      case 'flush':
        throw fullError('disk_full', 'the disk of the broker is full, and its reserve is used up');
      case 'tidy':
        return undefined;
      case 'put':
        return this.#mail.put(operation.mail, false);
      case 'read': {
        const { mailbox, afterSeq, count, bytes } = operation;
        return { mails: this.#mail.read(mailbox, afterSeq, count, bytes, undefined) };
      }
      case 'request':
        return { mails: this.#requests(operation, undefined) };
      default:
        return this.#perform(operation, false, nowMs);
    }
  }

  #transaction(work: () => void): void {
    this.#begin.run([]);
    this.#logged += transactionBytes;
    work();
    this.#commit.run([]);
  }

  #writeLogIntoFile(how: 'PASSIVE' | 'TRUNCATE'): void {
    try {
      this.#database.prepare(`PRAGMA wal_checkpoint(${how})`).all([]);
      this.#logged = 0;
    } catch (error) {
      if (!isFull(error)) throw error;
      // It stays in the log, where it is as safe; nothing new until there is room.
      if (this.#state === 'open') this.#reserve.giveUp();
      this.#state = 'full';
    }
  }
}
