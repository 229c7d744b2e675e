/**
 * The rows of the log as a table. One method per operation; each is one step of a transaction.
 * Not here: transactions and the disk (log-writer.ts), bounds (call-bounds.ts), what rows mean (service/call-decision.ts).
 *
 * Invariants: an outcome is written once. A row of an open call is removed long after its deadline, or by a purge.
 */
import { crc32 } from 'node:zlib';
import type Database from 'libsql';
import type { HostError } from '../../../kernel/errors.js';
import { errorBody } from '../../protocol/reply-body.js';
import type { UsageChange } from '../call-bounds.js';
import { type CallId, type CallState, callStates } from '../call-log.js';
import { damagedRow } from './log-errors.js';
import type { Answer, Operation, ThreadRow } from './log-messages.js';

/** WITHOUT ROWID measured the same (18 us for a receipt, 70 us for a call); a rowid makes removing expired rows simple. */
export const callsSchema = `
  CREATE TABLE calls (
    worker TEXT NOT NULL, epoch TEXT NOT NULL, key TEXT NOT NULL, state INTEGER NOT NULL, owner TEXT NOT NULL,
    expires INTEGER NOT NULL, digest TEXT NOT NULL, class INTEGER NOT NULL, attempts INTEGER NOT NULL,
    version INTEGER NOT NULL, sum INTEGER NOT NULL, reply BLOB, PRIMARY KEY (worker, epoch, key));
`;

/** A state is its place in `callStates` in the file. States up to `running` are open. */
const running = callStates.indexOf('running');
const refused = callStates.indexOf('refused');
const isOpen = (state: number): boolean => state <= running;
/** Class of a row. `purged`: its worker was revoked after it began; it has no reply and counts for no bound. */
const classes = { call: 0, callersKey: 1, purged: 2 } as const;
const removedAtOnce = 5_000;

interface Row {
  readonly state: number;
  readonly owner: string;
  readonly digest: string;
  readonly class: number;
  readonly attempts: number;
  readonly version: number;
  readonly sum: number;
  readonly reply: Buffer | null;
}

type Of<Op> = Extract<Operation, { op: Op }>;

export class CallsTable {
  readonly #owner: string;
  readonly #database: Database.Database;
  readonly #onProblem: (error: HostError) => void;
  readonly #statements = new Map<string, Database.Statement>();
  #changes: UsageChange[] = [];

  constructor(database: Database.Database, owner: string, onProblem: (error: HostError) => void) {
    this.#database = database;
    this.#owner = owner;
    this.#onProblem = onProblem;
  }

  /** Everything that the table holds, as changes. */
  load(): UsageChange[] {
    const text = `SELECT worker, class, state <= ${running} AS isOpen, count(*) AS rows, sum(coalesce(length(reply), 0)) AS bytes
      FROM calls WHERE class <> ${classes.purged} GROUP BY worker, class, isOpen`;
    const groups = this.#all(text) as { worker: string; class: number; isOpen: number; rows: number; bytes: number }[];
    return groups.map(({ worker, class: kind, isOpen: open, rows, bytes }) => ({
      ...{ worker, bytes, isCallersKey: kind === classes.callersKey },
      ...{ open: open ? rows : 0, finished: open ? 0 : rows },
    }));
  }

  /** The changes since the last call. They count only if the transaction commits. */
  takeChanges(): UsageChange[] {
    const changes = this.#changes;
    this.#changes = [];
    return changes;
  }

  receive(operation: Of<'receive'>): Answer {
    const { worker, epoch, key, state, digest, isCallersKey, expires, reply = null } = operation;
    const number = callStates.indexOf(state);
    const kind = isCallersKey ? classes.callersKey : classes.call;
    const text = 'INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?) ON CONFLICT DO NOTHING';
    const attempts = number === running ? 1 : 0;
    const values = [worker, epoch, key, number, this.#owner, expires, digest, kind, attempts, sumOf(reply), reply];
    if (this.#run(text, values) === 0) return this.#found(operation);
    this.#change(worker, kind, number, 1, reply?.length ?? 0);
    return { kind: 'done' };
  }

  begin(operation: Of<'begin'>): Answer {
    const { worker, epoch, key, version } = operation;
    const text = `UPDATE calls SET state = ${running}, owner = ?, attempts = attempts + 1, version = version + 1
      WHERE worker = ? AND epoch = ? AND key = ? AND version = ? AND state <= ${running}`;
    const isBegun = this.#run(text, [this.#owner, worker, epoch, key, version]) > 0;
    return isBegun ? { kind: 'done' } : this.find(operation);
  }

  finish(operation: Of<'finish'>): Answer {
    const { worker, epoch, key, owner, state, isCallersKey, reply = null } = operation;
    const number = callStates.indexOf(state);
    const kind = isCallersKey ? classes.callersKey : classes.call;
    const text = `UPDATE calls SET state = ?, reply = ?, sum = ?, version = version + 1
      WHERE worker = ? AND epoch = ? AND key = ? AND owner = ? AND state <= ${running} AND class = ?`;
    const which = [worker, epoch, key, owner];
    if (this.#run(text, [number, reply, sumOf(reply), ...which, kind]) > 0) {
      this.#change(worker, kind, running, -1, 0);
      this.#change(worker, kind, number, 1, reply?.length ?? 0);
      return { kind: 'done' };
    }
    this.#run(text, [number, null, sumOf(null), ...which, classes.purged]);
    return this.find(operation);
  }

  find(id: CallId): Answer {
    return this.#found(id, `AND (class <> ${classes.purged} OR state <= ${running})`);
  }

  /** A caller's key stays, because it may be sent again, unless its call was refused and did not run. */
  acknowledge({ worker, epoch, key }: Of<'ack'>): void {
    const which = `worker = ? AND epoch = ? AND key = ? AND state > ${running} AND (class = ${classes.call} OR state = ${refused})`;
    const text = `SELECT state, class, length(reply) AS bytes FROM calls WHERE ${which}`;
    type Acked = { state: number; class: number; bytes: number | null };
    const row = this.#statement(text).get([worker, epoch, key]) as Acked | undefined;
    if (!row) return;
    this.#run('DELETE FROM calls WHERE worker = ? AND epoch = ? AND key = ?', [worker, epoch, key]);
    this.#change(worker, row.class, row.state, -1, -(row.bytes ?? 0));
  }

  purge({ worker, except }: Of<'purge'>): void {
    const which = `worker = ? AND class <> ${classes.purged}${' AND epoch <> ?'.repeat(except.length)}`;
    const values = [worker, ...except];
    const text = `SELECT class, state, count(*) AS rows, sum(coalesce(length(reply), 0)) AS bytes FROM calls WHERE ${which} GROUP BY class, state`;
    for (const group of this.#all(text, values) as { class: number; state: number; rows: number; bytes: number }[])
      this.#change(worker, group.class, group.state, -group.rows, -group.bytes);
    this.#run(`DELETE FROM calls WHERE ${which} AND state < ${running}`, values);
    // A call that began keeps its row, without a reply: the operator may list the key again, and the worker may repeat the call.
    this.#run(`UPDATE calls SET class = ${classes.purged}, reply = NULL, sum = ? WHERE ${which}`, [
      sumOf(null),
      ...values,
    ]);
  }

  /** Removes expired rows, a bounded number. */
  sweep(nowMs: number): void {
    // Rows of open calls too: these calls ended at their deadline, and their outcome could not be written.
    const text = `SELECT rowid AS at, worker, class, state, length(reply) AS bytes FROM calls WHERE expires < ? LIMIT ${removedAtOnce}`;
    type Expired = { at: number; worker: string; class: number; state: number; bytes: number | null };
    for (const { at, worker, class: kind, state, bytes } of this.#all(text, [nowMs]) as Expired[]) {
      this.#run('DELETE FROM calls WHERE rowid = ?', [at]);
      this.#change(worker, kind, state, -1, -(bytes ?? 0));
    }
  }

  /** When the first finished row of each worker expires. */
  firstExpiries(kind: 'call' | 'callersKey'): Map<string, number> {
    const text = `SELECT worker, min(expires) AS first FROM calls WHERE class = ? AND state > ${running} GROUP BY worker`;
    const rows = this.#all(text, [classes[kind]]) as { worker: string; first: number }[];
    return new Map(rows.map(({ worker, first }) => [worker, first]));
  }

  #found({ worker, epoch, key }: CallId, condition = ''): Answer {
    const text = `SELECT * FROM calls WHERE worker = ? AND epoch = ? AND key = ? ${condition}`;
    const row = this.#statement(text).get([worker, epoch, key]) as Row | undefined;
    return row ? { kind: 'row', row: this.#shown(row) } : { kind: 'none' };
  }

  #shown(row: Row): ThreadRow {
    const { owner, digest, attempts, version, reply } = row;
    // The file may be an older copy: an open call of an earlier start may have begun since. A clean stop leaves no open call.
    const mayHaveBegun = isOpen(row.state) && owner !== this.#owner;
    const state = mayHaveBegun ? 'running' : (callStates[row.state] as CallState);
    const shown = { owner, digest, attempts, version };
    // A copy, because small buffers share their memory.
    if (reply === null || sumOf(reply) === row.sum)
      return { ...shown, state, reply: reply ? new Uint8Array(reply) : undefined };
    this.#onProblem(damagedRow());
    return { ...shown, state: 'uncertain', reply: new Uint8Array(errorBody(damagedRow())) };
  }

  #change(worker: string, kind: number, state: number, rows: number, bytes: number): void {
    if (kind === classes.purged) return;
    const [open, finished] = isOpen(state) ? [rows, 0] : [0, rows];
    this.#changes.push({ worker, isCallersKey: kind === classes.callersKey, open, finished, bytes });
  }

  #statement(text: string): Database.Statement {
    const statement = this.#statements.get(text) ?? this.#database.prepare(text);
    this.#statements.set(text, statement);
    return statement;
  }

  #run(text: string, values: readonly unknown[]): number {
    return this.#statement(text).run(values as unknown[]).changes;
  }

  #all(text: string, values: readonly unknown[] = []): unknown[] {
    return this.#statement(text).all(values as unknown[]);
  }
}

/** Detects a disk that returns other bytes than were written. */
const sumOf = (reply: Uint8Array | null): number => crc32(reply ?? '');
