/**
 * What is asked of the system's table of processes, whichever way it is read (proc-table.ts, ps-table.ts).
 * Invariants: a process is identified by pid and start time together; a pid alone may have been given to another one.
 * A table that cannot be read answers `unknown`, never `gone`: each caller decides what that means for it.
 */
export interface ProcessFacts {
  readonly pid: number;
  readonly ppid: number;
  readonly pgid: number;
  readonly session: number;
  /** Start time in the table's own unit. Compared (`isSameStart`), never converted. */
  readonly startTicks: number;
  readonly state: string;
}

/** `gone`: there is no such process. `unknown`: the table could not be read, which says nothing about the process. */
export type Look = ProcessFacts | 'gone' | 'unknown';

export interface ProcessTable {
  read(pid: number): Look;
  /** Living processes; those that only wait to be reaped are left out. */
  living(): readonly ProcessFacts[] | 'unknown';
  /** The value of the run marker a process was started with, when it can be seen. */
  mark(pid: number): string | undefined;
  /** False where no environment of another process can be read: then `mark` finds nothing and proves nothing. */
  readonly seesMarks: boolean;
  /**
   * Start time of this process, or of a child that was spawned in this tick and cannot have been reaped yet. For a child no
   * program is run: the death watch waits for it. Throws when it cannot be read; 0 when the system does not say.
   */
  startOf(pid: number): number;
  /** Two start times of one process differ by at most this much. */
  readonly startSlack: number;
  /** Differs between boots: pids and start times of one boot mean nothing in another. Empty when it is not known. */
  bootId(): string;
  /** Differs between containers that share a boot: pids of one mean nothing in the other. */
  pidSpace(): string;
}

export const isSameStart = ({ startSlack }: ProcessTable, one: number, other: number): boolean =>
  Math.abs(one - other) <= startSlack;

/** For callers to which a process that cannot be seen is as good as none. */
export const factsOf = (look: Look): ProcessFacts | undefined =>
  look === 'gone' || look === 'unknown' ? undefined : look;

/** Zombies and processes on their way out hold nothing but their exit status. */
export const isDead = (state: string) => state === 'Z' || state === 'X' || state === 'x';

/** This process ran out of something; that says nothing about the process that was asked for. */
export const cannotLook = (error: unknown): boolean =>
  ['EMFILE', 'ENFILE', 'ENOMEM', 'EAGAIN'].includes((error as NodeJS.ErrnoException).code ?? '');
