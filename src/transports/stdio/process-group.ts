/**
 * One child's process group: who is still in it, and signals to it.
 * Not here: when to signal (stop-ladder.ts), who the group belongs to after a crash (left-group.ts).
 * Invariants: never a signal to our own group, to pid 0, 1 or all processes; never to a group whose number now belongs
 * to somebody else.
 */
import { factsOf, isSameStart, type ProcessFacts, type ProcessTable } from './process-table.js';

/** A group is named by the process that began it, and by when, because its number can be given out again. */
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
  /** Looked up with the first signal: a start must not wait for the process table. */
  #ownGroup: number | undefined;

  constructor(leader: GroupLeader, table: ProcessTable, kill: Kill = systemKill) {
    this.leader = leader;
    this.#table = table;
    this.#kill = kill;
  }

  /** How many live in it. When the process table cannot be read but the group is not empty: 1, because that may not be called gone. */
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
      // The number is another process's by now, so what was ours is gone.
      if (facts.pid === this.leader.pid && !this.#isSameStart(facts)) return [];
      if (facts.startTicks >= this.leader.startTicks - this.#table.startSlack) members.push(facts);
    }
    return members;
  }

  /** To all members at once, so that one that is just forking cannot slip away. False when there was nobody. */
  signal(...signals: NodeJS.Signals[]): boolean {
    const { pid } = this.leader;
    if (!signallable(pid) || this.#isOurs() || this.#isSomebodyElses()) return false;
    return signals.map((signal) => this.#try(-pid, signal)).every(Boolean);
  }

  /** To each member but the leader. */
  signalFollowers(...signals: NodeJS.Signals[]): boolean {
    if (this.#isOurs()) return false;
    const members = this.members();
    if (members === 'unknown') return false;
    const followers = members.filter(({ pid }) => pid !== this.leader.pid && signallable(pid));
    for (const { pid } of followers) for (const signal of signals) this.#try(pid, signal);
    return followers.length > 0;
  }

  #isPlainlyEmpty(): boolean {
    try {
      this.#kill(-this.leader.pid, 0);
      return false;
    } catch (error) {
      // EPERM: there is somebody, only not ours to signal.
      return (error as NodeJS.ErrnoException).code === 'ESRCH';
    }
  }

  #isOurs(): boolean {
    this.#ownGroup ??= factsOf(this.#table.read(process.pid))?.pgid;
    return this.leader.pid === process.pid || this.leader.pid === this.#ownGroup;
  }

  #isSomebodyElses(): boolean {
    // A missing leader is no proof against us. The group was made with its leader in sight, and is signalled only while the last
    // look found a member; a group with a member keeps its number, whether its leader lives or not. To hit another group, the last
    // member would have to go, the number be given out again, become a group's and lose its new leader, all between a look and
    // the signal right after it. `unknown` is no proof either: the number was that of our child, and a stop must work without
    // descriptors too. Groups of a dead Hostler, of which only a journal tells, are not signalled then (left-group.ts).
    const holder = factsOf(this.#table.read(this.leader.pid));
    return holder !== undefined && !this.#isSameStart(holder);
  }

  #isSameStart({ startTicks }: ProcessFacts): boolean {
    return isSameStart(this.#table, startTicks, this.leader.startTicks);
  }

  #try(target: number, signal: NodeJS.Signals): boolean {
    try {
      this.#kill(target, signal);
      return true;
    } catch {
      return false;
    }
  }
}

/** Signals to 0, -1 and 1 mean our own group, everybody and init. */
export const signallable = (pid: number): boolean => Number.isSafeInteger(pid) && pid > 1;
