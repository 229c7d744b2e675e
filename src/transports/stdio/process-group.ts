/**
 * The process group of one child: its living members, and signals to it.
 * Not here: when to signal (stop-ladder.ts), groups of a dead Hostler (reaper.ts).
 * Invariant: no signal is sent to the group of Hostler, to pid 0 or 1, to all processes, or to a reused group number.
 */
import { factsOf, isSameStart, type ProcessFacts, type ProcessTable } from './process-table.js';

/** Identifies a group by pid and start time of its first process, because a pid can be reused. */
export interface GroupLeader {
  readonly pid: number;
  readonly startTicks: number;
}

export type Kill = (pid: number, signal: NodeJS.Signals | 0) => void;

export const systemKill: Kill = (pid, signal) => {
  process.kill(pid, signal);
};

export class ProcessGroup {
  readonly leader: GroupLeader;
  readonly #table: ProcessTable;
  readonly #kill: Kill;
  /** Read with the first signal, because reading the process table would delay a start. */
  #ownGroup: number | undefined;

  constructor(leader: GroupLeader, table: ProcessTable, kill: Kill = systemKill) {
    this.leader = leader;
    this.#table = table;
    this.#kill = kill;
  }

  /** Number of living members; 1 if the process table cannot be read and the group is not empty. */
  count(): number {
    const members = this.members();
    return members === 'unknown' ? 1 : members.length;
  }

  /** Returns living members. Walks through the process table, unless a signal 0 shows that the group is empty. */
  members(): readonly ProcessFacts[] | 'unknown' {
    if (!signallable(this.leader.pid) || this.#isPlainlyEmpty()) return [];
    const living = this.#table.living();
    if (living === 'unknown') return 'unknown';
    const members: ProcessFacts[] = [];
    for (const facts of living) {
      if (facts.pgid !== this.leader.pid) continue;
      // Another process has the pid of the leader, so the group has ended.
      if (facts.pid === this.leader.pid && !this.#isSameStart(facts)) return [];
      if (facts.startTicks >= this.leader.startTicks - this.#table.startSlack) members.push(facts);
    }
    return members;
  }

  /** Signals all members at once, so that a forking process cannot escape. Returns false if the group had no member. */
  signal(...signals: NodeJS.Signals[]): boolean {
    const { pid } = this.leader;
    if (!signallable(pid) || this.#isOurs() || this.#isReused()) return false;
    return signals.map((signal) => trySignal(this.#kill, -pid, signal)).every(Boolean);
  }

  signalFollowers(...signals: NodeJS.Signals[]): boolean {
    if (this.#isOurs()) return false;
    const members = this.members();
    if (members === 'unknown') return false;
    const followers = members.filter(({ pid }) => pid !== this.leader.pid && signallable(pid));
    for (const { pid } of followers) for (const signal of signals) trySignal(this.#kill, pid, signal);
    return followers.length > 0;
  }

  #isPlainlyEmpty(): boolean {
    try {
      this.#kill(-this.leader.pid, 0);
      return false;
    } catch (error) {
      // EPERM: the group has a member, but this process may not signal it.
      return (error as NodeJS.ErrnoException).code === 'ESRCH';
    }
  }

  #isOurs(): boolean {
    this.#ownGroup ??= factsOf(this.#table.read(process.pid))?.pgid;
    return this.leader.pid === process.pid || this.leader.pid === this.#ownGroup;
  }

  #isReused(): boolean {
    // A missing leader or `unknown` does not prove reuse: a group number is not reused while the group has a member, and every
    // signal follows a lookup that found one. A stop must also work without free descriptors, when every lookup is `unknown`.
    const holder = factsOf(this.#table.read(this.leader.pid));
    return holder !== undefined && !this.#isSameStart(holder);
  }

  #isSameStart({ startTicks }: ProcessFacts): boolean {
    return isSameStart(this.#table, startTicks, this.leader.startTicks);
  }
}

export function trySignal(kill: Kill, target: number, signal: NodeJS.Signals): boolean {
  try {
    kill(target, signal);
    return true;
  } catch {
    return false;
  }
}

/** kill(2) treats 0 as the own group and -1 as all processes; pid 1 is init. */
export const signallable = (pid: number): boolean => Number.isSafeInteger(pid) && pid > 1;
