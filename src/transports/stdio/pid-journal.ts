/**
 * What children this Hostler has running, on disk, so that the next one can clean up when this one and its death watch
 * were both killed. One file per running Hostler: a header that says whose it is, then one line per start and end.
 * Not here: reading such files (journal-reader.ts) and acting on them (reaper.ts).
 * Invariants: a run is announced before its process exists, because we may be killed before we know its number; the file
 * stays small; a directory that cannot be written to, or not be trusted, costs the clean-up after a crash, never the start
 * of a server.
 */
import { closeSync, mkdirSync, openSync, renameSync, rmSync, writeSync } from 'node:fs';
import path from 'node:path';
import type { GroupLeader } from './process-group.js';
import type { ProcessTable } from './process-table.js';
import { requireTrusted } from './state-dir.js';

export interface JournalHeader {
  readonly instanceId: string;
  readonly ownerPid: number;
  readonly ownerStartTicks: number;
  readonly bootId: string;
  readonly pidSpace: string;
}

export interface JournalEntry extends GroupLeader {
  readonly run: number;
}

/** A start that was announced: its process has no number yet. */
export interface JournalStart {
  readonly run: number;
  /** For the operator, who may have to look for it. */
  readonly server: string;
}

export const JOURNAL_ENDING = '.children';
const compactBytes = 64 * 1024;

export class PidJournal {
  readonly file: string;
  readonly #header: JournalHeader;
  readonly #onProblem: (error: unknown) => void;
  readonly #running = new Map<number, JournalEntry>();
  /** Announced, and not yet known to have a process or to have none. */
  readonly #starting = new Map<number, JournalStart>();
  #fd: number | undefined;
  #bytes = 0;
  #compactAtBytes = compactBytes;
  #opened = false;

  constructor(stateDir: string, instanceId: string, table: ProcessTable, onProblem: (error: unknown) => void) {
    this.file = path.join(stateDir, `${instanceId}${JOURNAL_ENDING}`);
    this.#onProblem = onProblem;
    this.#header = {
      instanceId,
      ownerPid: process.pid,
      ownerStartTicks: ownStart(table),
      bootId: table.bootId(),
      pidSpace: table.pidSpace(),
    };
  }

  /** Call right before the process is made; `started` or `notStarted` must follow. */
  starting(start: JournalStart): void {
    this.#starting.set(start.run, start);
    // Made with the first child: a Hostler without processes leaves no file.
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

  /** By run, not by pid: the pid may already be another child's. */
  ended({ pid, run }: JournalEntry): void {
    if (this.#running.delete(run)) this.#append({ ended: { pid, run } });
  }

  /** Removes the file when nothing is running; else it stays, for the next start to act on. */
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

  /** By way of a second file, so that a crash in between leaves one of the two whole. */
  #rewrite(): void {
    this.#opened = true;
    const lines = [
      { header: this.#header },
      ...[...this.#running.values()].map((started) => ({ started })),
      ...[...this.#starting.values()].map((starting) => ({ starting })),
    ];
    const text = lines.map((line) => `${JSON.stringify(line)}\n`).join('');
    const fresh = `${this.file}.new`;
    mkdirSync(path.dirname(this.file), { recursive: true, mode: 0o700 });
    requireTrusted(path.dirname(this.file));
    const fd = openSync(fresh, 'w', 0o600);
    try {
      this.#bytes = writeSync(fd, text);
      // With a thousand children the list alone is longer than that: rewriting it for each of them would not end.
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

/** 0 when the table cannot be read: a journal without it still names its children. */
function ownStart(table: ProcessTable): number {
  try {
    return table.startOf(process.pid);
  } catch {
    return 0;
  }
}
