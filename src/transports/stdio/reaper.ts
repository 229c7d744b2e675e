/**
 * Cleans up after a Hostler that was killed together with its death watch: ends the children in its journal.
 * Not here: the journal (pid-journal.ts).
 * Invariants: a journal is removed only if it was read, its owner is dead, and none of its processes is left. A journal is not
 * touched if it is empty, unreadable or owned by another user, or if its owner lives or is not visible. While the process table
 * answers `unknown`, no process is signalled or counted as gone; the journal stays and is reported.
 */

import { readdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { type Clock, keepAlive, sleep } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { JOURNAL_ENDING, runMark } from '../environment.js';
import { type JournalEntry, type JournalReading, type JournalStart, readJournal } from './pid-journal.js';
import { type Kill, ProcessGroup, signallable, systemKill, trySignal } from './process-group.js';
import { fateOf } from './process-owner.js';
import { factsOf, isSameStart, type ProcessFacts, type ProcessTable } from './process-table.js';
import { requireTrusted } from './state-dir.js';

export interface ReapReport {
  /** Number of removed journals of dead Hostlers. */
  readonly journals: number;
  readonly signalled: readonly number[];
  /** Number of entries whose process has ended, or whose pid was reused. */
  readonly stale: number;
  /** Number of groups that survived SIGKILL. Their journals stay for the next start. */
  readonly left: number;
  /** Number of journals that stay because the process table does not show whether their processes run. Each is reported. */
  readonly unknown: number;
}

interface ReapDeps {
  readonly clock: Clock;
  readonly table: ProcessTable;
  readonly kill?: Kill;
  readonly onProblem?: (error: HostError) => void;
  readonly read?: (file: string) => JournalReading;
}

export const NOTHING_REAPED: ReapReport = { journals: 0, signalled: [], stale: 0, left: 0, unknown: 0 };

const termMs = 1_000;
const pollMs = 25;

/** Throws before the first signal if the directory cannot be trusted. */
export async function reap(stateDir: string, deps: ReapDeps): Promise<ReapReport> {
  const { clock, table, kill = systemKill, onProblem = () => {}, read = readJournal } = deps;
  requireTrusted(stateDir);
  /** `isUnknown`: some processes of the journal cannot be found or identified, so the file stays. */
  const dead: { readonly file: string; readonly groups: readonly OrphanGroup[]; readonly isUnknown: boolean }[] = [];
  let stale = 0;
  let unknown = 0;
  const leave = (file: string, why: string): void => {
    unknown++;
    onProblem(journalLeft(file, why));
  };
  for (const file of journalFiles(stateDir)) {
    const reading = read(file);
    if (reading.kind !== 'parsed') {
      const problem = problemOf(file, reading);
      if (problem) onProblem(problem);
      continue;
    }
    const { header, running, starting } = reading.journal;
    const owner = fateOf(header, table);
    if (owner === 'unknown') leave(file, 'the process table could not be read, so its owner may still run');
    if (owner !== 'dead' && owner !== 'other_boot') continue;
    const announced = owner === 'dead' ? findAnnounced(starting, header.instanceId, table) : [];
    const entries = owner === 'dead' ? [...running, ...(announced === 'unknown' ? [] : announced)] : [];
    const groups = entries.map((entry) => new OrphanGroup(entry, header.instanceId, table, kill));
    const members = groups.map((group) => group.members());
    const isUnknown = announced === 'unknown' || members.includes('unknown');
    if (announced === 'unknown') leave(file, unseenStarts(starting));
    else if (isUnknown) leave(file, 'the process table does not show whether its processes still run');
    const living = groups.filter((_group, i) => isLiving(members[i]));
    stale += groups.length - living.length;
    dead.push({ file, groups: living, isUnknown });
  }

  const groups = dead.flatMap((journal) => journal.groups);
  const signalled = new Set<number>();
  const signalAll = (...signals: NodeJS.Signals[]) => {
    for (const group of groups) for (const pid of group.signal(...signals)) signalled.add(pid);
  };
  const waitForEnd = async (waitMs: number) => {
    const untilMs = clock.nowMs() + waitMs;
    // At startup no other handle keeps the event loop alive.
    const release = keepAlive();
    while (groups.some(lives) && clock.nowMs() < untilMs) await sleep(clock, pollMs);
    release();
  };
  signalAll('SIGTERM', 'SIGCONT');
  await waitForEnd(termMs);
  if (groups.some(lives)) {
    signalAll('SIGKILL');
    await waitForEnd(termMs);
  }

  // Journals are removed last: if this process is killed earlier, the next start finds them again.
  const removed = dead.filter(({ file, groups: named, isUnknown }) => !isUnknown && !named.some(lives) && remove(file));
  return { journals: removed.length, signalled: [...signalled], stale, left: groups.filter(lives).length, unknown };
}

/**
 * Finds processes that the dead Hostler started but could not record, by the marker of their run.
 * The oldest process with the marker is in the group of the child. Processes that left the group are not signalled.
 */
function findAnnounced(
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
    // Without a leader, the marker identifies the members, and no start time is compared.
    return isForeign || !signallable(pgid) ? [] : [{ pid: pgid, startTicks: leader?.startTicks ?? 0, run }];
  });
}

/**
 * The process group of a child whose Hostler is dead.
 * Invariant: no process of another program is signalled. The group number is valid while its leader has the recorded pid and
 * start time. After the exit of the leader it is valid while a process lives that was seen in the group together with
 * the leader, because the system does not reuse the number of a non-empty group. Otherwise only members with the run marker are
 * signalled, one by one.
 */
class OrphanGroup {
  readonly #entry: JournalEntry;
  readonly #mark: string;
  readonly #table: ProcessTable;
  readonly #kill: Kill;
  readonly #group: ProcessGroup;
  #witnesses: readonly ProcessFacts[] = [];

  constructor(entry: JournalEntry, instanceId: string, table: ProcessTable, kill: Kill) {
    this.#entry = entry;
    this.#mark = runMark(instanceId, entry.run);
    this.#table = table;
    this.#kill = kill;
    this.#group = new ProcessGroup(entry, table, kill);
  }

  /** Living members that belong to this run. */
  members(): readonly ProcessFacts[] | 'unknown' {
    const tie = this.#tie();
    if (tie === 'unknown') return 'unknown';
    if (tie !== 'number') return tie === 'marks' ? this.#marked() : [];
    const members = this.#group.members();
    if (members !== 'unknown') this.#witnesses = members;
    return members;
  }

  /** Returns the pids of the signalled processes. Signals none while the owner of the group is unknown. */
  signal(...signals: NodeJS.Signals[]): number[] {
    const members = this.members();
    const tie = this.#tie();
    if (members === 'unknown' || tie === 'none' || tie === 'unknown') return [];
    const pids = members.map(({ pid }) => pid);
    if (tie === 'number') this.#group.signal(...signals);
    else for (const pid of pids) for (const signal of signals) trySignal(this.#kill, pid, signal);
    return pids;
  }

  /** Returns the proof that the members belong to this run. */
  #tie(): 'number' | 'marks' | 'none' | 'unknown' {
    const { pid, startTicks } = this.#entry;
    const holder = this.#table.read(pid);
    if (holder === 'unknown') return 'unknown';
    if (holder !== 'gone') {
      return isSameStart(this.#table, holder.startTicks, startTicks) && holder.pgid === pid ? 'number' : 'none';
    }
    return this.#witnesses.some((witness) => this.#isStillIn(witness)) ? 'number' : 'marks';
  }

  #isStillIn(witness: ProcessFacts): boolean {
    const now = factsOf(this.#table.read(witness.pid));
    return (
      now !== undefined && isSameStart(this.#table, now.startTicks, witness.startTicks) && now.pgid === this.#entry.pid
    );
  }

  #marked(): readonly ProcessFacts[] | 'unknown' {
    const living = this.#table.living();
    if (living === 'unknown') return 'unknown';
    const members = living.filter(
      ({ pid, pgid }) => pgid === this.#entry.pid && signallable(pid) && pid !== process.pid,
    );
    // Without markers, the owner of the members is not known.
    if (!this.#table.seesMarks) return members.length === 0 ? [] : 'unknown';
    return members.filter(({ pid }) => this.#table.mark(pid) === this.#mark);
  }
}

const isLiving = (members: readonly ProcessFacts[] | 'unknown' | undefined): boolean =>
  members === 'unknown' || (members?.length ?? 0) > 0;

/** A group that cannot be read counts as living. */
const lives = (group: OrphanGroup): boolean => isLiving(group.members());

/** Ignores a failure: the journal names no living process, and the next start finds it again. */
function remove(file: string): boolean {
  try {
    rmSync(file, { force: true });
    return true;
  } catch {
    return false;
  }
}

const unseenStarts = (starting: readonly JournalStart[]): string =>
  `its Hostler was killed while it started ${namesOf(starting)}, and this system does not show which processes these are`;

/** Returns at most three names; the file has all of them. */
function namesOf(starting: readonly JournalStart[]): string {
  const names = [...new Set(starting.map(({ server }) => (server === '' ? 'a server' : `'${server}'`)))];
  return names.length > 3 ? `${names.slice(0, 3).join(', ')} and ${names.length - 3} more` : names.join(', ');
}

const journalLeft = (file: string, why: string): HostError =>
  new HostError('invalid_spec', `the journal of child processes ${file} was not removed: ${why}`, {
    reason: 'unknown_process',
    field: 'stateDir',
    hint: 'end the processes of these servers that no running Hostler owns, and remove the file; a reboot does both',
  });

function journalFiles(stateDir: string): string[] {
  try {
    return (
      readdirSync(stateDir)
        // A `.new` file is complete too if its owner died before the rename.
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
  // The owner may be writing the file now.
  if (reason === 'no_header' && file.endsWith('.new')) return undefined;
  return new HostError(
    'invalid_spec',
    `the journal of child processes ${file} was skipped: it could not be read (${reason})`,
    {
      reason,
      field: 'stateDir',
      hint: 'if no running Hostler owns it, end the processes that it names and remove the file',
    },
  );
}
