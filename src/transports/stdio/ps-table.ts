/**
 * The process table by way of `ps`, for systems without /proc (macOS). Slow (one program per question) and coarse (start times
 * in seconds of wall time), so only the stop ladder and the reaper ask it, and neither asks often. Starting a child asks nothing:
 * its start time is the time at which it was spawned.
 * It cannot see the environment of other processes: leftovers that left their group are not found here.
 * Invariant: `gone` is only said when `ps` ran and listed no such process. A `ps` that is missing, slow or failed is `unknown`.
 */
import { execFileSync, type StdioOptions } from 'node:child_process';
import { factsOf, isDead, type Look, type ProcessFacts, type ProcessTable } from './process-table.js';

/** Output of a program, its lines; undefined when it could not be run or failed. */
export type RunProgram = (file: string, args: readonly string[]) => readonly string[] | undefined;

interface PsTableOptions {
  readonly run?: RunProgram;
  /** Wall time in ms, which is what `ps` prints. */
  readonly wallMs?: () => number;
}

/** `ps` prints whole seconds, and a program is started a moment before or after the time that is read for it. */
const startSlackS = 2;

export function psTable({ run = runProgram, wallMs = Date.now }: PsTableOptions = {}): ProcessTable {
  const columns = ['-o', 'pid=,ppid=,pgid=,sess=,state=,lstart='];
  const ask = (...selection: string[]) =>
    run('ps', [...selection, ...columns])?.flatMap((line) => parseLine(line) ?? []);
  const read = (pid: number): Look => {
    const found = ask('-p', String(pid));
    if (found === undefined) return 'unknown';
    return found.find((facts) => facts.pid === pid) ?? 'gone';
  };
  let boot: string | undefined;
  return {
    read,
    living() {
      const found = ask('-A');
      // `ps` itself is always among them: an empty list was not a look at the table.
      if (found === undefined || found.length === 0) return 'unknown';
      return found.filter((facts) => !isDead(facts.state));
    },
    mark: () => undefined,
    seesMarks: false,
    // For this process, asked of `ps` once for each host: others compare it with what `ps` says later, and the clock may be set.
    startOf: (pid) => (pid === process.pid ? (factsOf(read(pid))?.startTicks ?? 0) : Math.floor(wallMs() / 1_000)),
    startSlack: startSlackS,
    bootId() {
      // The time of boot moves with the clock; the id of the boot session does not, where there is one.
      boot ??= ['kern.bootsessionuuid', 'kern.boottime']
        .map((name) => run('sysctl', ['-n', name])?.join(' ').trim() ?? '')
        .find((text) => text !== '');
      return boot ?? '';
    },
    pidSpace: () => '',
  };
}

export function parseLine(line: string): ProcessFacts | undefined {
  const [pid, ppid, pgid, session, state, ...since] = line.trim().split(/\s+/);
  const startTicks = Date.parse(`${since.join(' ')} UTC`) / 1_000;
  if (state === undefined || !Number.isFinite(startTicks)) return undefined;
  return {
    pid: Number(pid),
    ppid: Number(ppid),
    pgid: Number(pgid),
    // macOS prints an address here; only equality with a group number is ever asked.
    session: Number(session),
    startTicks,
    state: state.charAt(0),
  };
}

export function runProgram(file: string, args: readonly string[]): readonly string[] | undefined {
  try {
    // UTC: start times are compared with our own clock, whatever zone this process or the system is set to.
    const env = { PATH: '/usr/bin:/bin:/usr/sbin:/sbin', LC_ALL: 'C', TZ: 'UTC0' };
    const stdio: StdioOptions = ['ignore', 'pipe', 'pipe'];
    return linesOf(execFileSync(file, args, { env, encoding: 'utf8', stdio, timeout: 2_000 }));
  } catch (error) {
    const { status, stdout, stderr } = error as { status?: number | null; stdout?: string; stderr?: string };
    // `ps -p` ends with 1, in silence, when there is no such process. Everything else is a failure of `ps`.
    return status === 1 && stdout === '' && stderr === '' ? [] : undefined;
  }
}

const linesOf = (text: string): string[] => text.split('\n').filter((line) => line.trim() !== '');
