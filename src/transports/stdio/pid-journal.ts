/**
 * Records the children of a running Hostler on disk, for cleanup if Hostler and its death watch are both killed. There is one
 * file per Hostler: a header that names its owner, then one line per start and end.
 * Not here: acting on a journal (reaper.ts).
 * Invariants: a run is recorded before its spawn, because Hostler may be killed before it knows the pid. The file stays small.
 * If the directory cannot be written or trusted, only the cleanup after a crash is lost; servers still start. An unreadable
 * journal is never treated as empty.
 */

import { closeSync, constants, fstatSync, openSync, readFileSync, renameSync, rmSync, writeSync } from 'node:fs';
import path from 'node:path';
import { makeFolders } from '../../kernel/make-folders.js';
import { JOURNAL_ENDING } from '../environment.js';
import { type GroupLeader, signallable } from './process-group.js';
import { isOwner, ownerHere, type ProcessOwner } from './process-owner.js';
import type { ProcessTable } from './process-table.js';
import { requireTrusted } from './state-dir.js';

export interface JournalHeader extends ProcessOwner {
  readonly instanceId: string;
}

export interface JournalEntry extends GroupLeader {
  readonly run: number;
}

export interface JournalStart {
  readonly run: number;
  /** Shown to the operator, who may have to find the process. */
  readonly server: string;
}

const compactBytes = 64 * 1024;

export class PidJournal {
  readonly file: string;
  readonly #header: JournalHeader;
  readonly #onProblem: (error: unknown) => void;
  readonly #running = new Map<number, JournalEntry>();
  /** Announced runs that have neither started nor failed. */
  readonly #starting = new Map<number, JournalStart>();
  #fd: number | undefined;
  #bytes = 0;
  #compactAtBytes = compactBytes;
  #opened = false;

  constructor(stateDir: string, instanceId: string, table: ProcessTable, onProblem: (error: unknown) => void) {
    this.file = path.join(stateDir, `${instanceId}${JOURNAL_ENDING}`);
    this.#onProblem = onProblem;
    this.#header = { instanceId, ...ownerHere(table) };
  }

  /** Call right before the spawn; `started` or `notStarted` must follow. */
  starting(start: JournalStart): void {
    this.#starting.set(start.run, start);
    // The first child creates the file: a Hostler without children has no journal.
    if (!this.#opened) this.#attempt(() => this.#rewrite());
    else this.#append({ starting: start });
  }

  notStarted(run: number): void {
    if (this.#starting.delete(run)) this.#append({ ended: { run } });
  }

  started(entry: JournalEntry): void {
    this.#starting.delete(entry.run);
    this.#running.set(entry.run, entry);
    if (!this.#opened) this.#attempt(() => this.#rewrite());
    else this.#append({ started: entry });
  }

  /** The run identifies the child, because its pid may already be reused by another child. */
  ended({ pid, run }: JournalEntry): void {
    if (this.#running.delete(run)) this.#append({ ended: { pid, run } });
  }

  /** Removes the file if no child is running. Otherwise the next start acts on it. */
  close(): void {
    this.#attempt(() => {
      if (this.#fd === undefined) return;
      closeSync(this.#fd);
      this.#fd = undefined;
      if (this.#running.size === 0) rmSync(this.file, { force: true });
    });
  }

  #append(line: object): void {
    this.#attempt(() => {
      if (this.#fd === undefined) return;
      this.#bytes += writeSync(this.#fd, `${JSON.stringify(line)}\n`);
      if (this.#bytes > this.#compactAtBytes) this.#rewrite();
    });
  }

  /** Writes a second file first, so that a crash leaves one complete file. */
  #rewrite(): void {
    this.#opened = true;
    const lines = [
      { header: this.#header },
      ...[...this.#running.values()].map((started) => ({ started })),
      ...[...this.#starting.values()].map((starting) => ({ starting })),
    ];
    const text = lines.map((line) => `${JSON.stringify(line)}\n`).join('');
    const fresh = `${this.file}.new`;
    makeFolders(path.dirname(this.file));
    requireTrusted(path.dirname(this.file));
    const fd = openSync(fresh, 'w', 0o600);
    try {
      this.#bytes = writeSync(fd, text);
      // With a thousand children the list is longer than `compactBytes`, and each start would rewrite it.
      this.#compactAtBytes = Math.max(compactBytes, 2 * this.#bytes);
      renameSync(fresh, this.file);
    } catch (error) {
      closeSync(fd);
      throw error;
    }
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = fd;
  }

  #attempt(write: () => void): void {
    try {
      write();
    } catch (error) {
      this.#onProblem(error);
    }
  }
}

interface Journal {
  readonly header: JournalHeader;
  readonly running: readonly JournalEntry[];
  /** Announced runs without a known pid. */
  readonly starting: readonly JournalStart[];
}

export type JournalReading =
  | { readonly kind: 'parsed'; readonly journal: Journal }
  /** The file was just created, or has been removed. */
  | { readonly kind: 'empty' }
  | { readonly kind: 'foreign' }
  /** `reason` is an errno, or `not_a_file`, `too_large`, `no_header`. */
  | { readonly kind: 'unreadable'; readonly reason: string };

/** Far above the size of any journal. A larger file is not a journal. */
const journalBytesMax = 1024 * 1024;

/** `ownUid` is undefined on systems without file owners. */
export function readJournal(file: string, ownUid: number | undefined = process.getuid?.()): JournalReading {
  let fd: number | undefined;
  try {
    // O_NOFOLLOW does not follow a link, and O_NONBLOCK does not block on a FIFO.
    fd = openSync(file, constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0));
    const facts = fstatSync(fd);
    if (ownUid !== undefined && facts.uid !== ownUid) return { kind: 'foreign' };
    if (!facts.isFile()) return { kind: 'unreadable', reason: 'not_a_file' };
    if (facts.size > journalBytesMax) return { kind: 'unreadable', reason: 'too_large' };
    const text = readFileSync(fd, 'utf8');
    if (text === '') return { kind: 'empty' };
    const journal = parseJournal(text);
    return journal ? { kind: 'parsed', journal } : { kind: 'unreadable', reason: 'no_header' };
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code === 'ENOENT' ? { kind: 'empty' } : { kind: 'unreadable', reason: code ?? 'read' };
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
}

/** Returns undefined without a valid header. Skips lines that are not entries. */
export function parseJournal(text: string): Journal | undefined {
  let header: JournalHeader | undefined;
  const running = new Map<number, JournalEntry>();
  const starting = new Map<number, JournalStart>();
  for (const line of text.split('\n')) {
    const parsed = parseLine(line);
    if (!header) {
      if (!isHeader(parsed.header)) return undefined;
      header = parsed.header;
    } else if (isStart(parsed.starting)) {
      const { run, server } = parsed.starting;
      starting.set(run, { run, server: typeof server === 'string' ? server : '' });
    } else if (isEntry(parsed.started)) {
      starting.delete(parsed.started.run);
      running.set(parsed.started.run, parsed.started);
    } else if (isRecord(parsed.ended) && isCount(parsed.ended.run)) {
      starting.delete(parsed.ended.run);
      running.delete(parsed.ended.run);
    }
  }
  return header && { header, running: [...running.values()], starting: [...starting.values()] };
}

function parseLine(line: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(line);
    return isRecord(value) ? value : {};
  } catch {
    return {};
  }
}

const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null;
const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

const isHeader = (value: unknown): value is JournalHeader =>
  isRecord(value) && typeof value.instanceId === 'string' && value.instanceId.length >= 8 && isOwner(value);

const isStart = (value: unknown): value is { readonly run: number; readonly server?: unknown } =>
  isRecord(value) && isCount(value.run);

const isEntry = (value: unknown): value is JournalEntry =>
  isRecord(value) && isCount(value.pid) && signallable(value.pid) && isCount(value.startTicks) && isCount(value.run);
