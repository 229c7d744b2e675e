/**
 * The process table of the system, read from /proc, or with `ps` on systems without /proc (macOS).
 * Not here: signalling (process-group.ts).
 * Invariants: pid and start time together identify a process, because a pid can be reused. If the table cannot be read, the
 * result is `unknown`, never `gone`.
 */
import { execFileSync, type StdioOptions } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { RUN_MARKER } from '../environment.js';

export interface ProcessFacts {
  readonly pid: number;
  readonly ppid: number;
  readonly pgid: number;
  /** Start time in a unit of the table. Compared with `isSameStart`, never converted. */
  readonly startTicks: number;
  readonly state: string;
}

/** `gone`: no such process exists. `unknown`: the table could not be read, so the process may exist. */
export type Lookup = ProcessFacts | 'gone' | 'unknown';

export interface ProcessTable {
  read(pid: number): Lookup;
  /** Living processes, without zombies. */
  living(): readonly ProcessFacts[] | 'unknown';
  /** Value of the run marker in the environment of a process, if it can be read. */
  mark(pid: number): string | undefined;
  /** False: the environments of other processes cannot be read, so an undefined `mark` proves nothing. */
  readonly seesMarks: boolean;
  /**
   * Start time of this process, or of a child that was spawned in this tick and cannot have been reaped yet. For a child, no
   * program is run, because its registration with the death watch waits for the result.
   * Throws if it cannot be read. Returns 0 if the system has none.
   */
  startOf(pid: number): number;
  /** Maximum difference between two readings of one start time. */
  readonly startSlack: number;
  /** Differs between boots: pids and start times are valid only within one boot. Empty if it is not known. */
  bootId(): string;
  /** Differs between containers that share a boot: pids are valid only within one container. */
  pidSpace(): string;
}

export const isSameStart = ({ startSlack }: ProcessTable, one: number, other: number): boolean =>
  Math.abs(one - other) <= startSlack;

/** For callers that treat an unknown process like a missing one. */
export const factsOf = (found: Lookup): ProcessFacts | undefined =>
  found === 'gone' || found === 'unknown' ? undefined : found;

/** Zombies and exiting processes have only an exit status left. */
export const isDead = (state: string) => state === 'Z' || state === 'X' || state === 'x';

// --- /proc

export function procTable(root = '/proc'): ProcessTable {
  /** Returns undefined if no such process exists. Throws if this process has no free descriptors or memory. */
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
  // The name in parentheses may contain parentheses, spaces and newlines. Only the last parenthesis counts.
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

/** A shortage in this process says nothing about the process to look up. */
const isOwnShortage = (error: unknown): boolean =>
  ['EMFILE', 'ENFILE', 'ENOMEM', 'EAGAIN'].includes((error as NodeJS.ErrnoException).code ?? '');

// --- ps

/** Returns the output lines of a program; undefined if it could not run or failed. */
type RunProgram = (file: string, args: readonly string[]) => readonly string[] | undefined;

/** `ps` prints whole seconds, and the recorded time may be slightly before or after the real start. */
const psSlackS = 2;

/**
 * Slow (one program per lookup) and coarse (start times in seconds), so only the stop ladder and the reaper use it.
 * It cannot read environments, so leftovers outside their group are not found. `gone`: `ps` ran and listed no such process.
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
      // `ps` lists itself too, so an empty list means that it could not read the table.
      if (found === undefined || found.length === 0) return 'unknown';
      return found.filter((facts) => !isDead(facts.state));
    },
    mark: () => undefined,
    seesMarks: false,
    // The start of this process is read with `ps`, because a later `ps` is compared with it and the clock may change.
    startOf: (pid) => (pid === process.pid ? (factsOf(read(pid))?.startTicks ?? 0) : Math.floor(wallMs() / 1_000)),
    startSlack: psSlackS,
    bootId() {
      // The boot time changes with the clock. The id of the boot session does not, but some systems have none.
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
    // UTC: start times are compared with the wall clock of this process, independent of time zones.
    const env = { PATH: '/usr/bin:/bin:/usr/sbin:/sbin', LC_ALL: 'C', TZ: 'UTC0' };
    const stdio: StdioOptions = ['ignore', 'pipe', 'pipe'];
    const text = execFileSync(file, args, { env, encoding: 'utf8', stdio, timeout: 2_000 });
    return text.split('\n').filter((line) => line.trim() !== '');
  } catch (error) {
    const { status, stdout, stderr } = error as { status?: number | null; stdout?: string; stderr?: string };
    // `ps -p` exits with 1 and no output if no such process exists. Any other failure is a failure of `ps`.
    return status === 1 && stdout === '' && stderr === '' ? [] : undefined;
  }
}

export const systemTable: ProcessTable = existsSync('/proc/self/stat') ? procTable() : psTable();
