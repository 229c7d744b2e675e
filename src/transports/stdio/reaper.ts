/**
 * Cleans up after a Hostler that died together with its death watch: reads the journals it left and takes down what
 * of its children still runs.
 * Not here: writing journals (pid-journal.ts).
 *
 * Invariant: no foreign process is signalled. A group is ours when its leader has the pid and the start time that were
 * written down in this very boot; where the leader has gone, a member is ours only when it carries the dead Hostler's
 * mark. What is neither is left alone, and so is every journal whose owner lives or cannot be seen from here.
 */
import { closeSync, constants, fstatSync, openSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { type Clock, sleep } from '../../kernel/clock.js';
import { JOURNAL_ENDING, type JournalEntry, type JournalHeader } from './pid-journal.js';
import { type Kill, ProcessGroup, signallable, systemKill } from './process-group.js';
import type { ProcessFacts, ProcessTable } from './process-table.js';

export interface ReapReport {
  /** Journals of dead Hostlers, now removed. */
  readonly journals: number;
  /** Processes that were signalled. */
  readonly signalled: readonly number[];
  /** Entries whose process is gone or is now somebody else's. */
  readonly stale: number;
}

export interface ReapDeps {
  readonly clock: Clock;
  readonly table: ProcessTable;
  readonly kill?: Kill;
}

/** Far above what a journal grows to; a file beyond it is not one of ours. */
const journalBytesMax = 1024 * 1024;
const termMs = 1_000;
const pollMs = 25;

interface Journal {
  readonly header: JournalHeader;
  readonly running: readonly JournalEntry[];
}

export async function reap(stateDir: string, deps: ReapDeps): Promise<ReapReport> {
  const { table, kill = systemKill } = deps;
  const targets: Target[] = [];
  const done: string[] = [];
  let stale = 0;
  for (const file of journalFiles(stateDir)) {
    const journal = parseJournal(readJournal(file));
    if (journal && isOutOfReach(journal.header, table)) continue;
    if (journal && journal.header.bootId === table.bootId()) {
      for (const entry of journal.running) {
        const target = targetOf(entry, journal.header, table, kill);
        if (target) targets.push(target);
        else stale++;
      }
    }
    done.push(file);
  }
  const signalled = new Set<number>();
  const signalAll = (...signals: NodeJS.Signals[]) => {
    for (const target of targets) {
      for (const { pid } of target.living()) signalled.add(pid);
      target.signal(...signals);
    }
  };
  const someLive = () => targets.some((target) => target.living().length > 0);
  const waitForEnd = async (waitMs: number) => {
    const untilMs = deps.clock.nowMs() + waitMs;
    while (someLive() && deps.clock.nowMs() < untilMs) await sleep(deps.clock, pollMs);
  };
  signalAll('SIGTERM', 'SIGCONT');
  await waitForEnd(termMs);
  if (someLive()) {
    signalAll('SIGKILL');
    await waitForEnd(termMs);
  }
  // Last of all: if we are killed in the middle of this, the next start finds the journals again.
  for (const file of done) attempt(() => rmSync(file, { force: true }));
  return { journals: done.length, signalled: [...signalled], stale };
}

interface Target {
  living(): ProcessFacts[];
  signal(...signals: NodeJS.Signals[]): void;
}

function targetOf(entry: JournalEntry, header: JournalHeader, table: ProcessTable, kill: Kill): Target | undefined {
  const leader = table.read(entry.pid);
  if (leader) {
    if (leader.startTicks !== entry.startTicks || leader.pgid !== entry.pid) return undefined;
    const group = new ProcessGroup(entry, table, kill);
    return { living: () => group.members(), signal: (...signals) => void group.signal(...signals) };
  }
  // The leader has gone, so nothing ties the group's number to us but the mark of each member.
  const marked = table
    .living()
    .filter(({ pid, pgid }) => pgid === entry.pid && signallable(pid) && pid !== process.pid)
    .filter(({ pid }) => table.mark(pid)?.startsWith(`${header.instanceId}.`));
  if (marked.length === 0) return undefined;
  const living = () => marked.filter((member) => table.read(member.pid)?.startTicks === member.startTicks);
  return {
    living,
    signal(...signals) {
      for (const { pid } of living()) for (const signal of signals) attempt(() => kill(pid, signal));
    },
  };
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
  } catch {
    return [];
  }
}

function readJournal(file: string): string {
  let fd: number | undefined;
  try {
    fd = openSync(file, constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0));
    const facts = fstatSync(fd);
    // Who else could have written it could make us signal what he pleases.
    const foreign = process.getuid !== undefined && facts.uid !== process.getuid();
    if (!facts.isFile() || foreign || facts.size > journalBytesMax) return '';
    return readFileSync(fd, 'utf8');
  } catch {
    return '';
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
}

/** Undefined when there is no header to trust. Lines that are no entries are passed over. */
export function parseJournal(text: string): Journal | undefined {
  let header: JournalHeader | undefined;
  const running = new Map<number, JournalEntry>();
  for (const line of text.split('\n')) {
    const parsed = parseLine(line);
    if (!header) {
      if (!isHeader(parsed.header)) return undefined;
      header = parsed.header;
    } else if (isEntry(parsed.started)) {
      running.set(parsed.started.run, parsed.started);
    } else if (isRecord(parsed.ended) && isCount(parsed.ended.run)) {
      running.delete(parsed.ended.run);
    }
  }
  return header && { header, running: [...running.values()] };
}

function parseLine(line: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(line);
    return isRecord(value) ? value : {};
  } catch {
    return {};
  }
}

const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null;
const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

const isHeader = (value: unknown): value is JournalHeader =>
  isRecord(value) &&
  typeof value.instanceId === 'string' &&
  value.instanceId.length >= 8 &&
  typeof value.bootId === 'string' &&
  typeof value.pidSpace === 'string' &&
  isCount(value.ownerPid) &&
  isCount(value.ownerStartTicks);

const isEntry = (value: unknown): value is JournalEntry =>
  isRecord(value) && isCount(value.pid) && signallable(value.pid) && isCount(value.startTicks) && isCount(value.run);

function attempt(act: () => void): void {
  try {
    act();
  } catch {
    // Gone meanwhile, or not ours to signal.
  }
}
