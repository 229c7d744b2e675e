/**
 * The process table by way of `ps`, for systems without /proc. Slow (one program per question) and coarse (start times
 * in seconds), so only the stop ladder and the reaper ask it, and neither asks often.
 * It cannot see the environment of others: leftovers that left their group are not counted here.
 */
import { execFileSync } from 'node:child_process';
import { cannotLook, isDead, type ProcessFacts, type ProcessTable } from './process-table.js';

export function psTable(): ProcessTable {
  const ask = (...selection: string[]) =>
    run('ps', [...selection, '-o', 'pid=,ppid=,pgid=,sess=,state=,lstart=']).flatMap((line) => parseLine(line) ?? []);
  return {
    read: (pid) => ask('-p', String(pid))[0],
    living: () => ask('-A').filter((facts) => !isDead(facts.state)),
    mark: () => undefined,
    bootId: () => run('sysctl', ['-n', 'kern.boottime']).join(' ').trim(),
    pidSpace: () => '',
  };
}

export function parseLine(line: string): ProcessFacts | undefined {
  const [pid, ppid, pgid, session, state, ...since] = line.trim().split(/\s+/);
  const startTicks = Date.parse(since.join(' ')) / 1000;
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

function run(file: string, args: string[]): string[] {
  try {
    const env = { PATH: '/usr/bin:/bin:/usr/sbin:/sbin', LC_ALL: 'C' };
    return execFileSync(file, args, { env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'], timeout: 2_000 })
      .split('\n')
      .filter((line) => line.trim() !== '');
  } catch (error) {
    if (cannotLook(error)) throw error;
    return [];
  }
}
