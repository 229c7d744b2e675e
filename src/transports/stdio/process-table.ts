/**
 * The system's process table: read from /proc, or with `ps` where there is no /proc (macOS).
 * Not here: signalling (process-group.ts).
 * Invariants: pid and start time together identify a process, because a pid can be given to another one. A table that cannot be
 * read answers `unknown`, never `gone`: each caller decides what that means.
 */
import { execFileSync, type StdioOptions } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { RUN_MARKER } from '../environment.js';

export interface ProcessFacts {
  readonly pid: number;
  readonly ppid: number;
  readonly pgid: number;
  /** Start time in the table's own unit. Compared (`isSameStart`), never converted. */
  readonly startTicks: number;
  readonly state: string;
}

/** `gone`: there is no such process. `unknown`: the table could not be read, which says nothing about the process. */
export type Lookup = ProcessFacts | 'gone' | 'unknown';

export interface ProcessTable {
  read(pid: number): Lookup;
  /** Living processes, without zombies. */
  living(): readonly ProcessFacts[] | 'unknown';
  /** The value of the run marker in the environment of a process, when it can be read. */
  mark(pid: number): string | undefined;
  /** False where no environment of another process can be read: then `mark` finds nothing and proves nothing. */
  readonly seesMarks: boolean;
  /**
   * Start time of this process, or of a child that was spawned in this tick and cannot have been reaped yet. For a child no
   * program is run: its registration with the death watch waits for this. Throws when it cannot be read; 0 when the system has none.
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

/** For callers that treat a process they cannot see as none. */
export const factsOf = (found: Lookup): ProcessFacts | undefined =>
  found === 'gone' || found === 'unknown' ? undefined : found;

/** Zombies and exiting processes have nothing left but their exit status. */
export const isDead = (state: string) => state === 'Z' || state === 'X' || state === 'x';

// --- /proc

export function procTable(root = '/proc'): ProcessTable {
  /** Undefined when there is no such process. Throws when this process is out of descriptors or memory. */
  const statOf = (pid: number): ProcessFacts | undefined => {
    try {
      return parseStat(readFileSync(`${root}/${pid}/stat`, 'utf8'));
    } catch (error) {
      if (isOwnShortage(error)) throw error;
      return undefined;
    }
  };
  const read = (pid: number): Lookup => attempt<Lookup>(() => statOf(pid) ?? 'gone', 'unknown');
  return {
    read,
    startOf: (pid) => statOf(pid)?.startTicks ?? 0,
    startSlack: 0,
    seesMarks: true,
    living() {
      const found: ProcessFacts[] = [];
      for (const name of attempt(() => readdirSync(root), [])) {
        const first = name.charCodeAt(0);
        if (first < 0x30 || first > 0x39) continue;
        const facts = read(Number(name));
        // In an incomplete table a missing process would count as gone.
        if (facts === 'unknown') return 'unknown';
        if (facts !== 'gone' && !isDead(facts.state)) found.push(facts);
      }
      return found.length === 0 ? 'unknown' : found;
    },
    mark(pid) {
      const prefix = `${RUN_MARKER}=`;
      const environment = attempt(() => readFileSync(`${root}/${pid}/environ`, 'latin1'), '').split('\0');
      return environment.find((entry) => entry.startsWith(prefix))?.slice(prefix.length);
    },
    bootId: () => attempt(() => readFileSync(`${root}/sys/kernel/random/boot_id`, 'utf8').trim(), ''),
    pidSpace: () => attempt(() => readlinkSync(`${root}/self/ns/pid`), ''),
  };
}

export function parseStat(text: string): ProcessFacts | undefined {
  // The name in parentheses may contain parentheses, blanks and newlines itself: only the last parenthesis counts.
  const nameEnd = text.lastIndexOf(')');
  const pid = Number.parseInt(text, 10);
  if (nameEnd < 0 || !(pid > 0)) return undefined;
  const fields = text.slice(nameEnd + 2).split(' ');
  const [state, ppid, pgid] = fields;
  const startTicks = Number(fields[19]);
  if (state === undefined || !Number.isSafeInteger(startTicks)) return undefined;
  return { pid, ppid: Number(ppid), pgid: Number(pgid), startTicks, state };
}

function attempt<T>(read: () => T, otherwise: T): T {
  try {
    return read();
  } catch {
    return otherwise;
  }
}

/** A shortage of this process, which says nothing about the process that was looked up. */
const isOwnShortage = (error: unknown): boolean =>
  ['EMFILE', 'ENFILE', 'ENOMEM', 'EAGAIN'].includes((error as NodeJS.ErrnoException).code ?? '');

// --- ps

/** The output lines of a program; undefined when it could not be run or failed. */
type RunProgram = (file: string, args: readonly string[]) => readonly string[] | undefined;

/** `ps` prints whole seconds, and a program is started a moment before or after the time that is read for it. */
const psSlackS = 2;

/**
 * Slow (one program per lookup) and coarse (start times in seconds of wall time), so only the stop ladder and the reaper use it. It
 * cannot read environments: leftovers outside their group are not found. `gone` means that `ps` ran and listed no such process.
 */
export function psTable(run: RunProgram = runProgram, wallMs: () => number = Date.now): ProcessTable {
  const columns = ['-o', 'pid=,ppid=,pgid=,state=,lstart='];
  const list = (...selection: string[]) =>
    run('ps', [...selection, ...columns])?.flatMap((line) => parsePsLine(line) ?? []);
  const read = (pid: number): Lookup => {
    const found = list('-p', String(pid));
    return found ? (found.find((facts) => facts.pid === pid) ?? 'gone') : 'unknown';
  };
  let boot: string | undefined;
  return {
    read,
    living() {
      const found = list('-A');
      // `ps` lists itself too: an empty list means that it read no table.
      if (found === undefined || found.length === 0) return 'unknown';
      return found.filter((facts) => !isDead(facts.state));
    },
    mark: () => undefined,
    seesMarks: false,
    // `ps` gives the start of this process, because a later `ps` is compared with it and the clock may be set meanwhile.
    startOf: (pid) => (pid === process.pid ? (factsOf(read(pid))?.startTicks ?? 0) : Math.floor(wallMs() / 1_000)),
    startSlack: psSlackS,
    bootId() {
      // The boot time moves with the clock; the id of the boot session, where there is one, does not.
      boot ??= ['kern.bootsessionuuid', 'kern.boottime']
        .map((name) => run('sysctl', ['-n', name])?.join(' ').trim() ?? '')
        .find((text) => text !== '');
      return boot ?? '';
    },
    pidSpace: () => '',
  };
}

export function parsePsLine(line: string): ProcessFacts | undefined {
  const [pid, ppid, pgid, state, ...since] = line.trim().split(/\s+/);
  const startTicks = Date.parse(`${since.join(' ')} UTC`) / 1_000;
  if (state === undefined || !Number.isFinite(startTicks)) return undefined;
  return { pid: Number(pid), ppid: Number(ppid), pgid: Number(pgid), startTicks, state: state.charAt(0) };
}

export function runProgram(file: string, args: readonly string[]): readonly string[] | undefined {
  try {
    // UTC: start times are compared with our own clock, whatever time zone this process or the system has.
    const env = { PATH: '/usr/bin:/bin:/usr/sbin:/sbin', LC_ALL: 'C', TZ: 'UTC0' };
    const stdio: StdioOptions = ['ignore', 'pipe', 'pipe'];
    const text = execFileSync(file, args, { env, encoding: 'utf8', stdio, timeout: 2_000 });
    return text.split('\n').filter((line) => line.trim() !== '');
  } catch (error) {
    const { status, stdout, stderr } = error as { status?: number | null; stdout?: string; stderr?: string };
    // `ps -p` exits with 1, without output, when there is no such process. Everything else is a failure of `ps`.
    return status === 1 && stdout === '' && stderr === '' ? [] : undefined;
  }
}

export const systemTable: ProcessTable = existsSync('/proc/self/stat') ? procTable() : psTable();
