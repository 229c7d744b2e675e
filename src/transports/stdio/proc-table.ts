/**
 * Reads the system's table of processes: who is in which group, since when, and under which mark it was started.
 * Not here: signalling (process-group.ts). Systems without /proc answer through `ps` (ps-table.ts).
 * Invariants: a process is identified by pid and start time together; a pid alone may have been given to another one.
 * "Not there" is never said when the truth is "could not look": without descriptors or memory, reading throws.
 */
import { existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { RUN_MARKER } from '../environment.js';
import { psTable } from './ps-table.js';

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

export function parseStat(text: string): ProcessFacts | undefined {
  // The name stands in parentheses and may itself hold parentheses, blanks and newlines: only the last one counts.
  const nameEnd = text.lastIndexOf(')');
  const pid = Number.parseInt(text, 10);
  if (nameEnd < 0 || !(pid > 0)) return undefined;
  const fields = text.slice(nameEnd + 2).split(' ');
  const [state, ppid, pgid, session] = fields;
  const startTicks = Number(fields[19]);
  if (state === undefined || !Number.isSafeInteger(startTicks)) return undefined;
  return { pid, ppid: Number(ppid), pgid: Number(pgid), session: Number(session), startTicks, state };
}

export function procTable(root = '/proc'): ProcessTable {
  const read = (pid: number): ProcessFacts | undefined => {
    try {
      return parseStat(readFileSync(`${root}/${pid}/stat`, 'utf8'));
    } catch (error) {
      if (cannotLook(error)) throw error;
      return undefined;
    }
  };
  return {
    read,
    living() {
      const found: ProcessFacts[] = [];
      for (const name of readdirSync(root)) {
        const first = name.charCodeAt(0);
        if (first < 0x30 || first > 0x39) continue;
        const facts = read(Number(name));
        if (facts && !isDead(facts.state)) found.push(facts);
      }
      return found;
    },
    mark(pid) {
      try {
        const prefix = `${RUN_MARKER}=`;
        const environment = readFileSync(`${root}/${pid}/environ`, 'latin1').split('\0');
        return environment.find((entry) => entry.startsWith(prefix))?.slice(prefix.length);
      } catch {
        return undefined;
      }
    },
    bootId: () => readText(`${root}/sys/kernel/random/boot_id`),
    pidSpace() {
      try {
        return readlinkSync(`${root}/self/ns/pid`);
      } catch {
        return '';
      }
    },
  };
}

/** We ran out of something; this says nothing about the process that was asked for. */
export const cannotLook = (error: unknown): boolean =>
  ['EMFILE', 'ENFILE', 'ENOMEM', 'EAGAIN'].includes((error as NodeJS.ErrnoException).code ?? '');

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch {
    return '';
  }
}

export const systemTable: ProcessTable = existsSync('/proc/self/stat') ? procTable() : psTable();
