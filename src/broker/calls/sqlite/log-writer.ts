/**
 * Runs operations against the file: one transaction for all of them, checkpoints, free pages, and a disk that is full.
 * Not here: the statements (calls-table.ts), messages (log-thread.ts).
 *
 * Invariants: a receipt is given after its transaction is synced. A transaction without room is rolled back, and nothing of it is
 * answered as made. The log leaves `floorBytes` of the disk free, because removing rows needs room too.
 */
import { statfsSync } from 'node:fs';
import type Database from 'libsql';
import type { HostError } from '../../../kernel/errors.js';
import type { UsageChange } from '../call-bounds.js';
import { CallsTable } from './calls-table.js';
import { diskFull } from './log-errors.js';
import { isFull, moveFailed, openInMemory, openLogFile } from './log-file.js';
import { type Answer, type Answered, type Batch, type LogState, type Operation, toPlain } from './log-messages.js';

const MiB = 1024 * 1024;
const pageBytes = 4096;
/** More than one transaction and the write-ahead log before a checkpoint can need. */
const floorBytes = 16 * MiB;
/** Replies above this wait while the disk is full; smaller outcomes are written. */
const smallBytes = 64 * 1024;
/** Bytes of the write-ahead log before it is written into the file. */
const checkpointBytes = 2 * MiB;
/** Free pages that stay for the next replies, and how many are returned at once. */
const sparePages = (8 * MiB) / pageBytes;
const returnedPages = (4 * MiB) / pageBytes;

export interface Written {
  readonly answers: Answer[];
  readonly changes: UsageChange[];
  readonly expiries?: Answered['expiries'];
}

export class LogWriter {
  /** Undefined: the rows are in memory. */
  readonly #folder: string | undefined;
  readonly #table: CallsTable;
  readonly #database: Database.Database;
  readonly loaded: UsageChange[];
  #walBytes = 0;
  #isFull = false;
  #isSynced = true;
  #hasFailed = false;
  /** Free pages are left for the next tidying. */
  hasSpare = true;

  constructor(folder: string | undefined, owner: string, onProblem: (error: HostError) => void) {
    this.#folder = folder;
    const use = (database: Database.Database) => {
      const table = new CallsTable(database, owner, onProblem);
      return { database, table, loaded: table.load() };
    };
    const opened = folder === undefined ? openInMemory(use) : openLogFile(folder, onProblem, use);
    this.#database = opened.database;
    this.#table = opened.table;
    this.loaded = opened.loaded;
  }

  get state(): LogState {
    if (this.#hasFailed) return 'failed';
    return this.#isFull ? 'full' : 'open';
  }

  /** Throws when the disk failed. Then nothing may be written any more. */
  write({ operations, nowMs }: Pick<Batch, 'operations' | 'nowMs'>): Written {
    try {
      this.#look();
      const written = this.#inOne(operations, nowMs) ?? this.#oneByOne(operations, nowMs);
      if (this.#walBytes >= checkpointBytes) this.#checkpoint();
      return written;
    } catch (error) {
      this.#failed();
      throw error;
    }
  }

  /** Throws when the disk failed. Then the file stays open: SQLite would write and sync it once more on close. */
  close(): void {
    try {
      this.#checkpoint();
    } catch (error) {
      this.#failed();
      throw error;
    }
    this.#database.close();
  }

  #failed(): void {
    this.#hasFailed = true;
    if (this.#folder !== undefined) moveFailed(this.#folder);
  }

  /** Undefined: the disk has no room for all of them. */
  #inOne(operations: readonly Operation[], nowMs: number): Written | undefined {
    try {
      this.#setSynced(operations.some(isSynced));
      this.#database.exec('BEGIN');
      const answers = operations.flatMap((operation) => this.#apply(operation, nowMs) ?? []);
      this.#database.exec('COMMIT');
      for (const operation of operations) this.#walBytes += pageBytes + replyBytesOf(operation);
      const changes = this.#table.takeChanges();
      return { answers, changes, expiries: this.#expiries(operations) };
    } catch (error) {
      this.#table.takeChanges();
      if (this.#database.inTransaction) this.#database.exec('ROLLBACK');
      if (!isFull(error)) throw error;
      this.#isFull = true;
      return undefined;
    }
  }

  /** The disk is full: what fits is written, the rest is answered so. */
  #oneByOne(operations: readonly Operation[], nowMs: number): Written {
    const written = operations.map((operation) => {
      const one = operations.length > 1 ? this.#inOne([operation], nowMs) : undefined;
      return one ?? { answers: isAnswered(operation) ? [error(diskFull())] : [], changes: [] };
    });
    return { answers: written.flatMap(({ answers }) => answers), changes: written.flatMap(({ changes }) => changes) };
  }

  #apply(operation: Operation, nowMs: number): Answer | undefined {
    switch (operation.op) {
      case 'receive': {
        if (!this.#isFull) return this.#table.receive(operation);
        const known = this.#table.find(operation);
        return known.kind === 'row' ? known : error(diskFull());
      }
      case 'begin':
        return this.#table.begin(operation);
      case 'finish':
        return this.#isFull && replyBytesOf(operation) > smallBytes ? error(diskFull()) : this.#table.finish(operation);
      case 'find':
        return this.#table.find(operation);
      case 'ack':
        return void this.#table.acknowledge(operation);
      case 'purge':
        this.#table.purge(operation);
        return { kind: 'none' };
      case 'tidy':
        return void this.#tidy(operation.isSweep || this.#isFull, nowMs);
      default:
        return operation satisfies never;
    }
  }

  #tidy(isSweep: boolean, nowMs: number): void {
    if (isSweep) this.#table.sweep(nowMs);
    this.hasSpare = this.#number('freelist_count') > (this.#isFull ? 0 : sparePages);
    if (!this.hasSpare) return;
    this.#database.prepare(`PRAGMA incremental_vacuum(${returnedPages})`).all([]);
    // The file shrinks with the checkpoint.
    this.#walBytes = checkpointBytes;
  }

  #checkpoint(): void {
    try {
      this.#database.prepare('PRAGMA wal_checkpoint(PASSIVE)').all([]);
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
    const freeBytes = bavail * bsize;
    // Half more than the floor, so that the state does not change with every call.
    this.#isFull = freeBytes < (this.#isFull ? 1.5 * floorBytes : floorBytes);
  }

  #expiries(operations: readonly Operation[]): Answered['expiries'] {
    if (!operations.some((operation) => operation.op === 'tidy' && operation.isSweep)) return undefined;
    return { calls: this.#table.firstExpiries('call'), keys: this.#table.firstExpiries('callersKey') };
  }

  /** FULL syncs each commit, NORMAL only before a checkpoint. */
  #setSynced(isWanted: boolean): void {
    if (isWanted !== this.#isSynced) this.#database.exec(`PRAGMA synchronous = ${isWanted ? 'FULL' : 'NORMAL'}`);
    this.#isSynced = isWanted;
  }

  #number(pragma: string): number {
    return Number((this.#database.prepare(`PRAGMA ${pragma}`).all([]) as Record<string, unknown>[])[0]?.[pragma]);
  }
}

/**
 * Whether the commit of this operation must outlive a loss of power. The outcome of a worker's own key need not, which saves half of the
 * syncs: it outlives the process, and without it the call counts as begun and is answered as uncertain.
 */
const isSynced = (operation: Operation): boolean =>
  operation.op === 'receive' ||
  operation.op === 'begin' ||
  operation.op === 'purge' ||
  (operation.op === 'finish' && operation.isCallersKey);

const isAnswered = ({ op }: Operation): boolean => op !== 'ack' && op !== 'tidy';

export const replyBytesOf = (operation: Operation): number =>
  'reply' in operation ? (operation.reply?.length ?? 0) : 0;

const error = (refusal: HostError): Answer => ({ kind: 'error', error: toPlain(refusal) });
