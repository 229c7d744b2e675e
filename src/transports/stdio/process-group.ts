/**
 * One child's process group: its living members, and signals to it.
 * Not here: when to signal (stop-ladder.ts), groups of a dead Hostler (reaper.ts).
 * Invariants: no signal goes to our own group, to pid 0, 1 or all processes, nor to a group whose number belongs to another
 * process now.
 */
import { factsOf, isSameStart, type ProcessFacts, type ProcessTable } from './process-table.js';

/** Identifies a group: by pid and start time of its first process, because the number can be reused. */
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
  /** Read with the first signal: a start must not wait for the process table. */
  #ownGroup: number | undefined;

  constructor(leader: GroupLeader, table: ProcessTable, kill: Kill = systemKill) {
    this.leader = leader;
    this.#table = table;
    this.#kill = kill;
  }

  /** Living members. 1 when the process table cannot be read and the group is not empty. */
  count(): number {
    const members = this.members();
    return members === 'unknown' ? 1 : members.length;
  }

  /** Living members. Costs a walk through the process table, unless the group is plainly empty. */
  members(): readonly ProcessFacts[] | 'unknown' {
    if (!signallable(this.leader.pid) || this.#isPlainlyEmpty()) return [];
    const living = this.#table.living();
    if (living === 'unknown') return 'unknown';
    const members: ProcessFacts[] = [];
    for (const facts of living) {
      if (facts.pgid !== this.leader.pid) continue;
      // The pid belongs to another process now: our group is gone.
      if (facts.pid === this.leader.pid && !this.#isSameStart(facts)) return [];
      if (facts.startTicks >= this.leader.startTicks - this.#table.startSlack) members.push(facts);
    }
    return members;
  }

  /** Signals all members at once, so that a forking process cannot escape. False when there was no member. */
  signal(...signals: NodeJS.Signals[]): boolean {
    const { pid } = this.leader;
    if (!signallable(pid) || this.#isOurs() || this.#isReused()) return false;
    return signals.map((signal) => trySignal(this.#kill, -pid, signal)).every(Boolean);
  }

  /** Signals each member but the leader. */
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
      // EPERM: there is a member that we may not signal.
      return (error as NodeJS.ErrnoException).code === 'ESRCH';
    }
  }

  #isOurs(): boolean {
    this.#ownGroup ??= factsOf(this.#table.read(process.pid))?.pgid;
    return this.leader.pid === process.pid || this.leader.pid === this.#ownGroup;
  }

  #isReused(): boolean {
    // Neither a missing leader nor `unknown` proves reuse: a group keeps its number while it has a member, and it is signalled only
    // right after a lookup found one. A stop must also work without free descriptors, when every lookup is `unknown`.
    const holder = factsOf(this.#table.read(this.leader.pid));
    return holder !== undefined && !this.#isSameStart(holder);
  }

  #isSameStart({ startTicks }: ProcessFacts): boolean {
    return isSameStart(this.#table, startTicks, this.leader.startTicks);
  }
}

/** False when the target is gone or may not be signalled. */
export function trySignal(kill: Kill, target: number, signal: NodeJS.Signals): boolean {
  try {
    kill(target, signal);
    return true;
  } catch {
    return false;
  }
}

/** 0, -1 and 1 as targets mean our own group, all processes and init. */
export const signallable = (pid: number): boolean => Number.isSafeInteger(pid) && pid > 1;
