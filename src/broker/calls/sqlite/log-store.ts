/**
 * The rows of the log in their file: one method per operation, one transaction for all operations of a message, checkpoints, free
 * pages, and a disk that is full.
 * Not here: opening the file (log-file.ts), messages (log-thread.ts), bounds (call-bounds.ts), what rows mean
 * (service/call-decision.ts).
 *
 * Invariants: a receipt is given after its transaction is synced. If the disk has no room for a transaction, it is rolled back, and none
 * of its operations is reported as done. The log leaves `floorBytes` of the disk free, because removing rows needs room too. An outcome is
 * written once. A row of an open call is removed long after its deadline, or by a purge.
 */
import { statfsSync } from 'node:fs';
import { crc32 } from 'node:zlib';
import type Database from 'libsql';
import type { HostError } from '../../../kernel/errors.js';
import { errorBody } from '../../protocol/reply-body.js';
import type { UsageChange } from '../call-bounds.js';
import { type CallId, type CallState, callStates } from '../call-log.js';
import { damagedRow } from './log-errors.js';
import { isFull, openInMemory, openLogFile } from './log-file.js';
import type { Answer, Batch, Operation, ThreadRow, Written } from './log-messages.js';

const MiB = 1024 * 1024;
const pageBytes = 4096;
/** Bytes of the disk that stay free: more than one transaction needs, together with the write-ahead log before a checkpoint. */
const floorBytes = 16 * MiB;
/** While the disk is full, replies larger than this wait; smaller outcomes are written. */
const smallBytes = 64 * 1024;
/** Bytes of the write-ahead log before it is written into the file. */
const checkpointBytes = 2 * MiB;
/** `sparePages` stay free in the file for the next replies; one tidying returns at most `returnedPages` to the disk. */
const sparePages = (8 * MiB) / pageBytes;
const returnedPages = (4 * MiB) / pageBytes;
/** At most this many expired rows are removed at once. */
const removedAtOnce = 5_000;
/** At most this many acknowledgements wait for room on the disk. Beyond that, acknowledged rows stay until they expire. */
const unwrittenMax = 10_000;

/** The file stores a state as its index in `callStates`. States up to `running` are open. */
const running = callStates.indexOf('running');
const refused = callStates.indexOf('refused');
/** Class of a row. `purged`: the worker was revoked after the call began; the row has no reply and counts for no bound. */
const classes = { call: 0, callersKey: 1, purged: 2 } as const;
const byId = 'worker = ? AND epoch = ? AND key = ?';
const counted = 'worker, class, state, length(reply) AS bytes';

interface Row {
  readonly state: number;
  readonly owner: string;
  readonly digest: string;
  readonly attempts: number;
  readonly version: number;
  readonly sum: number;
  /** `all` of libsql gives each row a buffer of its own, so it can be transferred. */
  readonly reply: ArrayBuffer | null;
}

interface CountedRow {
  readonly worker: string;
  readonly class: number;
  readonly state: number;
  readonly bytes: number | null;
}

type Of<Op> = Extract<Operation, { op: Op }>;
type Values = readonly unknown[];

export class LogStore {
  /** Undefined: the rows are in memory. */
  readonly #folder: string | undefined;
  readonly #owner: string;
  readonly #onProblem: (error: HostError) => void;
  readonly #database: Database.Database;
  readonly #statements = new Map<string, Database.Statement>();
  /** Changes of usage by the current transaction, which count only if it commits. At first: the rows that the file has. */
  #changes: UsageChange[];
  /** Acknowledgements for which the disk had no room at all. */
  #unwritten: Operation[] = [];
  #walBytes = 0;
  #isFull = false;
  #isSynced = true;
  /** The next tidying has free pages to return to the disk. */
  #hasSpare = true;

  constructor(folder: string | undefined, owner: string, onProblem: (error: HostError) => void) {
    this.#folder = folder;
    this.#owner = owner;
    this.#onProblem = onProblem;
    const use = (database: Database.Database) => [database, usageIn(database)] as const;
    [this.#database, this.#changes] = folder === undefined ? openInMemory(use) : openLogFile(folder, onProblem, use);
  }

  /** Throws when the disk failed. Then nothing may be written any more. */
  write({ operations, nowMs }: Batch): Written {
    this.#look();
    const all = this.#unwritten.length === 0 ? operations : [...this.#unwritten, ...operations];
    const apply = (operation: Operation) => this.#apply(operation, nowMs);
    // The first try may find the disk full. Then the second refuses new calls and large replies, and the third all writes that need room.
    const answers =
      this.#inOne(all, apply) ??
      this.#inOne(all, apply) ??
      this.#inOne(all, (operation) => (needsRoom(operation) ? full : apply(operation)));
    if (this.#walBytes >= checkpointBytes) this.#checkpoint();
    this.#unwritten = answers ? [] : all.filter(({ op }) => op === 'ack').slice(0, unwrittenMax);
    const isSweep = answers && operations.some((operation) => operation.op === 'tidy' && operation.isSweep);
    const written: Written = {
      ...{ answers: answers ?? operations.filter(isAnswered).map(() => full), changes: this.#changes },
      ...{ isFull: this.#isFull, hasSpare: this.#hasSpare, expiries: isSweep ? this.#expiries() : undefined },
    };
    this.#changes = [];
    return written;
  }

  /** Throws when the disk failed. Then the file stays open: SQLite would write and sync it once more on close. */
  close(): void {
    this.#checkpoint();
    this.#database.close();
  }

  /** Returns undefined if the disk has no room for all operations. */
  #inOne(operations: readonly Operation[], apply: (operation: Operation) => Answer | undefined): Answer[] | undefined {
    try {
      this.#setSynced(operations.some(isSynced));
      this.#database.exec('BEGIN');
      const answers = operations.flatMap((operation) => apply(operation) ?? []);
      this.#database.exec('COMMIT');
      for (const operation of operations) this.#walBytes += pageBytes + replyBytesOf(operation);
      return answers;
    } catch (error) {
      this.#changes = [];
      if (this.#database.inTransaction) this.#database.exec('ROLLBACK');
      if (!isFull(error)) throw error;
      this.#isFull = true;
      return undefined;
    }
  }

  /** Undefined: the operation has no answer. */
  #apply(operation: Operation, nowMs: number): Answer | undefined {
    switch (operation.op) {
      case 'receive': {
        if (!this.#isFull) return this.#receive(operation);
        const known = this.#find(operation);
        return known.kind === 'row' ? known : full;
      }
      case 'begin':
        return this.#begin(operation);
      case 'finish':
        return this.#isFull && replyBytesOf(operation) > smallBytes ? full : this.#finish(operation);
      case 'find':
        return this.#find(operation);
      case 'ack':
        return this.#acknowledge(operation);
      case 'purge':
        return this.#purge(operation);
      case 'tidy':
        return this.#tidy(operation.isSweep || this.#isFull, nowMs);
      default:
        return operation satisfies never;
    }
  }

  #receive(call: Of<'receive'>): Answer {
    const { worker, state, digest, isCallersKey, expires, reply } = call;
    const number = callStates.indexOf(state);
    const kind = isCallersKey ? classes.callersKey : classes.call;
    const text = 'INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?) ON CONFLICT DO NOTHING';
    const facts = [number, this.#owner, expires, digest, kind, number === running ? 1 : 0, sumOf(reply), reply ?? null];
    if (this.#run(text, [...valuesOf(call), ...facts]) === 0) return this.#row(call);
    this.#count([{ worker, class: kind, state: number, bytes: reply?.length ?? 0 }], 1);
    return done;
  }

  #begin(call: Of<'begin'>): Answer {
    const text = `UPDATE calls SET state = ${running}, owner = ?, attempts = attempts + 1, version = version + 1
      WHERE ${byId} AND version = ? AND state <= ${running}`;
    const isBegun = this.#run(text, [this.#owner, ...valuesOf(call), call.version]) > 0;
    return isBegun ? done : this.#find(call);
  }

  /** Every call ends here, so the statement has no RETURNING, which would take twice the time. */
  #finish(call: Of<'finish'>): Answer {
    const { worker, owner, state, isCallersKey, reply } = call;
    const text = `UPDATE calls SET state = ?, reply = ?, sum = ?, version = version + 1
      WHERE ${byId} AND owner = ? AND state <= ${running} AND class = ?`;
    const [number, kind] = [callStates.indexOf(state), isCallersKey ? classes.callersKey : classes.call];
    const which = [...valuesOf(call), owner];
    if (this.#run(text, [number, reply ?? null, sumOf(reply), ...which, kind]) > 0) {
      const row = { worker, class: kind, bytes: 0 };
      this.#count([{ ...row, state: running }], -1);
      this.#count([{ ...row, state: number, bytes: reply?.length ?? 0 }], 1);
      return done;
    }
    this.#run(text, [number, null, 0, ...which, classes.purged]);
    return this.#find(call);
  }

  #find(id: CallId): Answer {
    return this.#row(id, `AND (class <> ${classes.purged} OR state <= ${running})`);
  }

  /** A caller's key stays, because it may be sent again, unless its call was refused and did not run. */
  #acknowledge(id: CallId): undefined {
    const which = `${byId} AND state > ${running} AND (class = ${classes.call} OR state = ${refused})`;
    this.#remove(which, valuesOf(id));
  }

  #purge({ worker, except }: Of<'purge'>): Answer {
    // Rows of the host's own calls have a principal, which begins with `_`, instead of a worker.
    const whose = worker === undefined ? "substr(worker, 1, 1) <> '_'" : 'worker = ?';
    const which = `class <> ${classes.purged} AND ${whose}
      AND worker || ' ' || epoch NOT IN (SELECT value FROM json_each(?))
      AND worker NOT IN (SELECT value FROM json_each(?))`;
    const kept = JSON.stringify(except);
    const values = [...(worker === undefined ? [] : [worker]), kept, kept];
    this.#remove(`${which} AND state < ${running}`, values);
    this.#count(this.#all(`SELECT ${counted} FROM calls WHERE ${which}`, values), -1);
    // A call that began keeps its row, without a reply: the operator may list the key again, and the worker may repeat the call.
    this.#run(`UPDATE calls SET class = ${classes.purged}, reply = NULL, sum = 0 WHERE ${which}`, values);
    return none;
  }

  #tidy(isSweep: boolean, nowMs: number): undefined {
    // Rows of open calls too: these calls ended at their deadline, and their outcome could not be written.
    const expired = `rowid IN (SELECT rowid FROM calls WHERE expires < ? LIMIT ${removedAtOnce})`;
    if (isSweep) this.#remove(expired, [nowMs]);
    const [{ freelist_count: spare = 0 } = {}] = this.#all<{ freelist_count?: number }>('PRAGMA freelist_count');
    this.#hasSpare = spare > (this.#isFull ? 0 : sparePages);
    if (this.#hasSpare) {
      this.#all(`PRAGMA incremental_vacuum(${returnedPages})`);
      // Causes a checkpoint, because only a checkpoint shrinks the file.
      this.#walBytes = checkpointBytes;
    }
  }

  #remove(which: string, values: Values): void {
    this.#count(this.#all(`DELETE FROM calls WHERE ${which} RETURNING ${counted}`, values), -1);
  }

  #row(id: CallId, condition = ''): Answer {
    const [row] = this.#all<Row>(`SELECT * FROM calls WHERE ${byId} ${condition}`, valuesOf(id));
    return row ? { kind: 'row', row: this.#shown(row) } : none;
  }

  #shown(row: Row): ThreadRow {
    const { owner, digest, attempts, version } = row;
    // The file may be an older copy: an open call of an earlier start may have begun since. A clean stop leaves no open call.
    const mayHaveBegun = row.state <= running && owner !== this.#owner;
    const state = mayHaveBegun ? 'running' : (callStates[row.state] as CallState);
    const reply = row.reply ? new Uint8Array(row.reply) : undefined;
    if (!reply || sumOf(reply) === row.sum) return { owner, digest, attempts, version, state, reply };
    this.#onProblem(damagedRow());
    const damaged = new Uint8Array(errorBody(damagedRow()));
    return { owner, digest, attempts, version, state: 'uncertain', reply: damaged };
  }

  /** When the first finished row of each worker expires. */
  #expiries(): Written['expiries'] {
    const text = `SELECT worker, min(expires) AS first FROM calls WHERE class = ? AND state > ${running} GROUP BY worker`;
    const firstOf = (kind: number) =>
      new Map(this.#all<{ worker: string; first: number }>(text, [kind]).map(({ worker, first }) => [worker, first]));
    return { calls: firstOf(classes.call), keys: firstOf(classes.callersKey) };
  }

  #checkpoint(): void {
    try {
      this.#all('PRAGMA wal_checkpoint(PASSIVE)');
      this.#walBytes = 0;
    } catch (error) {
      if (!isFull(error)) throw error;
      this.#isFull = true;
    }
  }

  /** Whether there is room on the disk. */
  #look(): void {
    if (this.#folder === undefined) return;
    const { bavail, bsize } = statfsSync(this.#folder);
    // A full disk has room again at 1.5 times the floor, so that the state does not change with every call.
    this.#isFull = bavail * bsize < (this.#isFull ? 1.5 * floorBytes : floorBytes);
  }

  /** In mode FULL, SQLite syncs each commit; in mode NORMAL, only before a checkpoint. */
  #setSynced(isWanted: boolean): void {
    if (isWanted !== this.#isSynced) this.#database.exec(`PRAGMA synchronous = ${isWanted ? 'FULL' : 'NORMAL'}`);
    this.#isSynced = isWanted;
  }

  #count(rows: readonly CountedRow[], by: 1 | -1): void {
    for (const row of rows) if (row.class !== classes.purged) this.#changes.push(changeOf(row, by));
  }

  #run(text: string, values: Values): number {
    return this.#statement(text).run(values as unknown[]).changes;
  }

  #all<R>(text: string, values: Values = []): R[] {
    return this.#statement(text).all(values as unknown[]) as R[];
  }

  #statement(text: string): Database.Statement {
    const statement = this.#statements.get(text) ?? this.#database.prepare(text);
    this.#statements.set(text, statement);
    return statement;
  }
}

function changeOf({ worker, class: kind, state, bytes }: CountedRow, rows: number): UsageChange {
  const [open, finished] = state <= running ? [rows, 0] : [0, rows];
  return { worker, isCallersKey: kind === classes.callersKey, open, finished, bytes: Math.sign(rows) * (bytes ?? 0) };
}

/** Usage by all rows of the table, in the form of changes. */
function usageIn(database: Database.Database): UsageChange[] {
  const text = `SELECT worker, class, state, count(*) AS rows, sum(length(reply)) AS bytes FROM calls
    WHERE class <> ${classes.purged} GROUP BY worker, class, state`;
  return (database.prepare(text).all([]) as (CountedRow & { rows: number })[]).map((row) => changeOf(row, row.rows));
}

/**
 * Whether the commit of this operation must survive a loss of power. The outcome of a call whose key the worker process made need not,
 * which saves half of the syncs. A crash of this process does not lose that outcome. After a loss of power that loses it, the call counts
 * as begun and is answered as uncertain.
 */
const isSynced = (operation: Operation): boolean =>
  operation.op === 'finish' ? operation.isCallersKey : ['receive', 'begin', 'purge'].includes(operation.op);

const isAnswered = ({ op }: Operation): boolean => op !== 'ack' && op !== 'tidy';

const needsRoom = ({ op }: Operation): boolean => op === 'receive' || op === 'begin' || op === 'finish';

export const replyBytesOf = (operation: Operation): number =>
  'reply' in operation ? (operation.reply?.length ?? 0) : 0;

const valuesOf = ({ worker, epoch, key }: CallId): Values => [worker, epoch, key];

/** Checksum of a reply, to notice when the disk returns other bytes than were written. */
const sumOf = (reply: Uint8Array | undefined): number => crc32(reply ?? '');

/** Shared objects: a structured clone copies each only once per message, however many answers refer to it. */
const done: Answer = { kind: 'done' };
const none: Answer = { kind: 'none' };
const full: Answer = { kind: 'full' };
