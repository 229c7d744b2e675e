/**
 * Cleans up after a Hostler that died together with its death watch: takes down what still runs of the children that
 * its journal names, and of those it had only announced.
 * Not here: writing journals (pid-journal.ts), reading one (journal-reader.ts), telling whose a group is (left-group.ts).
 *
 * Invariants: a journal is removed only when it was read, its owner is dead, and nothing it names is left. One that is
 * empty, unreadable, another user's, or whose owner lives or cannot be seen from here, stays as it is. What the process table
 * does not tell (`unknown`) is not signalled and not called gone: its journal stays and is reported.
 */
import { readdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { type Clock, sleep } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { keepAlive } from '../../kernel/keep-alive.js';
import { runMark } from '../environment.js';
import { type JournalReading, readJournal } from './journal-reader.js';
import { LeftGroup } from './left-group.js';
import { JOURNAL_ENDING, type JournalEntry, type JournalHeader, type JournalStart } from './pid-journal.js';
import { type Kill, signallable, systemKill } from './process-group.js';
import { factsOf, isSameStart, type ProcessFacts, type ProcessTable } from './process-table.js';
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
  /** Journals that stay because the process table does not tell whether what they name still runs. Each is reported. */
  readonly unknown: number;
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
  /** Announced starts that cannot be looked for, or groups that cannot be judged: it stays, whatever becomes of the rest. */
  readonly isUnknown: boolean;
}

export const NOTHING_REAPED: ReapReport = { journals: 0, signalled: [], stale: 0, left: 0, unknown: 0 };

const termMs = 1_000;
const pollMs = 25;

/** Throws, before anything is signalled, when the directory cannot be trusted. */
export async function reap(stateDir: string, deps: ReapDeps): Promise<ReapReport> {
  const { clock, table, kill = systemKill, onProblem = () => {}, read = readJournal } = deps;
  requireTrusted(stateDir);
  const dead: DeadJournal[] = [];
  let stale = 0;
  let unknown = 0;
  const keep = (file: string, what: string): void => {
    unknown++;
    onProblem(keptJournal(file, what));
  };
  for (const file of journalFiles(stateDir)) {
    const reading = read(file);
    if (reading.kind !== 'parsed') {
      const problem = problemOf(file, reading);
      if (problem) onProblem(problem);
      continue;
    }
    const { header, running, starting } = reading.journal;
    const owner = ownerOf(header, table);
    if (owner === 'unknown') keep(file, 'the process table could not be read, so its owner may still run');
    if (owner !== 'dead' && owner !== 'other_boot') continue;
    const announced = owner === 'dead' ? unnamed(starting, header.instanceId, table) : [];
    const entries = owner === 'dead' ? [...running, ...(announced === 'unknown' ? [] : announced)] : [];
    const groups = entries.map((entry) => new LeftGroup(entry, header.instanceId, table, kill));
    const looks = groups.map((group) => group.members());
    const isUnknown = announced === 'unknown' || looks.includes('unknown');
    if (announced === 'unknown') keep(file, unseenStarts(starting));
    else if (isUnknown) keep(file, 'the process table does not tell whether what it names still runs');
    stale += looks.filter((members) => !isLiving(members)).length;
    dead.push({ file, groups: groups.filter((_group, i) => isLiving(looks[i])), isUnknown });
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
  const removed = dead.filter(({ file, groups: named, isUnknown }) => !isUnknown && !named.some(lives) && remove(file));
  return { journals: removed.length, signalled: [...signalled], stale, left: groups.filter(lives).length, unknown };
}

/**
 * Processes that the dead Hostler had started without coming to write them down. Only the mark of that very run tells. Of several
 * that carry it, the oldest is in the group of the child: what left that group later is not ours to take down.
 */
function unnamed(
  starting: readonly JournalStart[],
  instanceId: string,
  table: ProcessTable,
): readonly JournalEntry[] | 'unknown' {
  if (starting.length === 0) return [];
  const living = table.seesMarks ? table.living() : 'unknown';
  if (living === 'unknown') return 'unknown';
  const runs = new Map(starting.map(({ run }) => [runMark(instanceId, run), run]));
  const oldest = new Map<number, ProcessFacts>();
  for (const facts of living) {
    const run = runs.get(table.mark(facts.pid) ?? '');
    const known = run === undefined ? undefined : oldest.get(run);
    if (run !== undefined && (!known || facts.startTicks < known.startTicks)) oldest.set(run, facts);
  }
  return [...oldest].flatMap(([run, { pgid }]) => {
    const leader = factsOf(table.read(pgid));
    const isForeign = leader !== undefined && table.mark(pgid) !== runMark(instanceId, run);
    // Without a leader each member is ours by its mark, and no start time is compared.
    return isForeign || !signallable(pgid) ? [] : [{ pid: pgid, startTicks: leader?.startTicks ?? 0, run }];
  });
}

const isLiving = (members: readonly ProcessFacts[] | 'unknown' | undefined): boolean =>
  members === 'unknown' || (members?.length ?? 0) > 0;

/** When the table cannot be read, nothing is called gone. */
const lives = (group: LeftGroup): boolean => isLiving(group.members());

/** One that cannot be removed is found again by the next start, and names nobody who lives. */
function remove(file: string): boolean {
  try {
    rmSync(file, { force: true });
    return true;
  } catch {
    return false;
  }
}

type Owner = 'alive' | 'dead' | 'other_boot' | 'other_container' | 'unknown';

function ownerOf(header: JournalHeader, table: ProcessTable): Owner {
  const bootId = table.bootId();
  if (header.bootId !== bootId) return header.bootId === '' || bootId === '' ? 'unknown' : 'other_boot';
  // The process table of this container says nothing about another one.
  if (header.pidSpace !== table.pidSpace()) return 'other_container';
  const owner = table.read(header.ownerPid);
  if (owner === 'unknown') return 'unknown';
  if (owner === 'gone' || owner.state === 'Z') return 'dead';
  // The owner could not read its own start time: its pid alone does not prove it dead.
  if (header.ownerStartTicks === 0) return 'unknown';
  return isSameStart(table, owner.startTicks, header.ownerStartTicks) ? 'alive' : 'dead';
}

const unseenStarts = (starting: readonly JournalStart[]): string =>
  `its Hostler was killed while it started ${namesOf(starting)}, and this system does not show which processes those are`;

/** At most a few: the file has them all. */
function namesOf(starting: readonly JournalStart[]): string {
  const names = [...new Set(starting.map(({ server }) => (server === '' ? 'a server' : `'${server}'`)))];
  return names.length > 3 ? `${names.slice(0, 3).join(', ')} and ${names.length - 3} more` : names.join(', ');
}

const keptJournal = (file: string, what: string): HostError =>
  new HostError('invalid_spec', `the journal of children ${file} was kept: ${what}`, {
    reason: 'unknown_process',
    field: 'stateDir',
    hint: 'look for processes of these servers that no Hostler runs, end them, and remove the file; a reboot settles it too',
  });

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
