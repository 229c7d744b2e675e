/**
 * What is asked of the system's table of processes, whichever way it is read (proc-table.ts, ps-table.ts).
 * Invariants: a process is identified by pid and start time together; a pid alone may have been given to another one.
 * "Not there" is never said when the truth is "could not look": without descriptors or memory, reading throws.
 */
export interface ProcessFacts {
  readonly pid: number;
  readonly ppid: number;
  readonly pgid: number;
  readonly session: number;
  /** Start time since boot, in the table's own unit. Compared, never converted. */
  readonly startTicks: number;
  readonly state: string;
}

/** All but `mark` throw when the table cannot be read. */
export interface ProcessTable {
  /** Undefined when there is no such process. */
  read(pid: number): ProcessFacts | undefined;
  /** Living processes; those that only wait to be reaped are left out. */
  living(): ProcessFacts[];
  /** The value of the run marker a process was started with, when we may see it. */
  mark(pid: number): string | undefined;
  /** Differs between boots: pids and start times of one boot mean nothing in another. */
  bootId(): string;
  /** Differs between containers that share a boot: pids of one mean nothing in the other. */
  pidSpace(): string;
}

/** Zombies and processes on their way out hold nothing but their exit status. */
export const isDead = (state: string) => state === 'Z' || state === 'X' || state === 'x';

/** We ran out of something; this says nothing about the process that was asked for. */
export const cannotLook = (error: unknown): boolean =>
  ['EMFILE', 'ENFILE', 'ENOMEM', 'EAGAIN'].includes((error as NodeJS.ErrnoException).code ?? '');
