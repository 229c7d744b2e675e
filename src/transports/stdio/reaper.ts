/**
 * Cleans up after a Hostler that died together with its death watch: takes down what still runs of the children that
 * its journal names, and of those it had only announced.
 * Not here: writing journals (pid-journal.ts), reading one (journal-reader.ts), telling whose a group is (left-group.ts).
 *
 * Invariants: a journal is removed only when it was read, its owner is dead, and nothing it names is left. One that is
 * empty, unreadable, another user's, or whose owner lives or cannot be seen from here, stays as it is.
 */
import { readdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { type Clock, sleep } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { keepAlive } from '../../kernel/keep-alive.js';
import { runMark } from '../environment.js';
import { type JournalReading, readJournal } from './journal-reader.js';
import { LeftGroup } from './left-group.js';
import { JOURNAL_ENDING, type JournalEntry, type JournalHeader } from './pid-journal.js';
import { type Kill, signallable, systemKill } from './process-group.js';
import type { ProcessFacts, ProcessTable } from './process-table.js';
import { requireTrusted } from './state-dir.js';

export interface ReapReport {
  /** Journals of dead Hostlers, now removed. */
  readonly journals: number;
  /** Processes that were signalled. */
  readonly signalled: readonly number[];
  /** Entries whose process is gone or is now somebody else's. */
  readonly stale: number;
  /** Groups that outlived SIGKILL; their journals stay, for the next start. */
  readonly left: number;
}

interface ReapDeps {
  readonly clock: Clock;
  readonly table: ProcessTable;
  readonly kill?: Kill;
  /** A journal could not be used, and why. */
  readonly onProblem?: (error: HostError) => void;
  readonly read?: (file: string) => JournalReading;
}

interface DeadJournal {
  readonly file: string;
  readonly groups: readonly LeftGroup[];
}

export const NOTHING_REAPED: ReapReport = { journals: 0, signalled: [], stale: 0, left: 0 };

const termMs = 1_000;
const pollMs = 25;

/** Throws, before anything is signalled, when the directory cannot be trusted or the process table cannot be read. */
export async function reap(stateDir: string, deps: ReapDeps): Promise<ReapReport> {
  const { clock, table, kill = systemKill, onProblem = () => {}, read = readJournal } = deps;
  requireTrusted(stateDir);
  const dead: DeadJournal[] = [];
  let stale = 0;
  for (const file of journalFiles(stateDir)) {
    const reading = read(file);
    if (reading.kind !== 'parsed') {
      const problem = problemOf(file, reading);
      if (problem) onProblem(problem);
      continue;
    }
    const { header, running, starting } = reading.journal;
    if (isOutOfReach(header, table)) continue;
    const sameBoot = header.bootId === table.bootId();
    const entries = sameBoot ? [...running, ...unnamed(starting, header.instanceId, table)] : [];
    const groups = entries.map((entry) => new LeftGroup(entry, header.instanceId, table, kill));
    const living = groups.filter((group) => group.members().length > 0);
    stale += groups.length - living.length;
    dead.push({ file, groups: living });
  }

  const groups = dead.flatMap((journal) => journal.groups);
  const signalled = new Set<number>();
  const signalAll = (...signals: NodeJS.Signals[]) => {
    for (const group of groups) for (const pid of group.signal(...signals)) signalled.add(pid);
  };
  const waitForEnd = async (waitMs: number) => {
    const untilMs = clock.nowMs() + waitMs;
    // A process that has just begun has nothing else to live for, and would end before what it waits for.
    const letGo = keepAlive();
    while (groups.some(lives) && clock.nowMs() < untilMs) await sleep(clock, pollMs);
    letGo();
  };
  signalAll('SIGTERM', 'SIGCONT');
  await waitForEnd(termMs);
  if (groups.some(lives)) {
    signalAll('SIGKILL');
    await waitForEnd(termMs);
  }

  // Last of all: if we are killed in the middle of this, the next start finds the journals again.
  const removed = dead.filter((journal) => !journal.groups.some(lives) && remove(journal.file));
  return { journals: removed.length, signalled: [...signalled], stale, left: groups.filter(lives).length };
}

/**
 * Whom the dead one had started without coming to write it down. Only the mark of that very run tells. Of several that carry
 * it, the oldest is in the group of the child: what left that group later is not ours to take down.
 */
function unnamed(starting: readonly number[], instanceId: string, table: ProcessTable): JournalEntry[] {
  if (starting.length === 0) return [];
  const runs = new Map(starting.map((run) => [runMark(instanceId, run), run]));
  const oldest = new Map<number, ProcessFacts>();
  for (const facts of table.living()) {
    const run = runs.get(table.mark(facts.pid) ?? '');
    const known = run === undefined ? undefined : oldest.get(run);
    if (run !== undefined && (!known || facts.startTicks < known.startTicks)) oldest.set(run, facts);
  }
  return [...oldest].flatMap(([run, { pgid }]) => {
    const leader = table.read(pgid);
    const isForeign = leader !== undefined && table.mark(pgid) !== runMark(instanceId, run);
    // Without a leader each member is ours by its mark, and no start time is compared.
    return isForeign || !signallable(pgid) ? [] : [{ pid: pgid, startTicks: leader?.startTicks ?? 0, run }];
  });
}

/** When the table cannot be read, nothing is called gone. */
function lives(group: LeftGroup): boolean {
  try {
    return group.members().length > 0;
  } catch {
    return true;
  }
}

/** One that cannot be removed is found again by the next start, and names nobody who lives. */
function remove(file: string): boolean {
  try {
    rmSync(file, { force: true });
    return true;
  } catch {
    return false;
  }
}

/** The owner lives, or runs in another container of this boot, where our process table says nothing about it. */
function isOutOfReach(header: JournalHeader, table: ProcessTable): boolean {
  if (header.bootId !== table.bootId()) return false;
  if (header.pidSpace !== table.pidSpace()) return true;
  const owner = table.read(header.ownerPid);
  return owner !== undefined && owner.startTicks === header.ownerStartTicks && owner.state !== 'Z';
}

function journalFiles(stateDir: string): string[] {
  try {
    return (
      readdirSync(stateDir)
        // A journal that was being rewritten when its owner died is whole as well.
        .filter((name) => name.endsWith(JOURNAL_ENDING) || name.endsWith(`${JOURNAL_ENDING}.new`))
        .map((name) => path.join(stateDir, name))
    );
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}

function problemOf(file: string, reading: JournalReading): HostError | undefined {
  if (reading.kind === 'parsed' || reading.kind === 'empty') return undefined;
  const reason = reading.kind === 'foreign' ? 'foreign_owner' : reading.reason;
  // Somebody may be writing it this very moment.
  if (reason === 'no_header' && file.endsWith('.new')) return undefined;
  return new HostError('invalid_spec', `the journal of children ${file} was left alone, unread (${reason})`, {
    reason,
    field: 'stateDir',
    hint: 'if no Hostler runs that it could belong to, look for the processes it names and remove it',
  });
}
