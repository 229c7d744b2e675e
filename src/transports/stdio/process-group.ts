/**
 * The process group of one child: its living members, and signals to it.
 * Not here: groups of a dead Hostler (reaper.ts).
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

/** kill(2) treats 0 as the group of the caller and -1 as all processes; pid 1 is init. */
export const signallable = (pid: number): boolean => Number.isSafeInteger(pid) && pid > 1;

/**
 * Pure state machine that stops a child: close stdin, then SIGTERM, then SIGKILL, each after a wait, until its group is empty.
 * Not here: reading the process table, closing and signalling (child.ts).
 * Invariant: every stop ends. The last rung has a limit too; members that still live then are reported in `left`.
 */
export interface LadderPace {
  /** Time for a server to exit after its stdin was closed, before SIGTERM. */
  readonly eofMs: number;
  /** Time for the group to exit after SIGTERM, before SIGKILL. */
  readonly termMs: number;
  /** Time for the rest of the group to exit after its leader, before SIGTERM. */
  readonly settleMs: number;
  /** Time for the group to end after SIGKILL. Processes stuck in the kernel can outlast it. */
  readonly verifyMs: number;
}

export const DEFAULT_PACE: LadderPace = { eofMs: 2_000, termMs: 3_000, settleMs: 50, verifyMs: 2_000 };

/** Pace for a server that violated a limit: almost no wait, but one chance to stop its children. */
export const FAST_PACE: LadderPace = { eofMs: 0, termMs: 250, settleMs: 0, verifyMs: 2_000 };

/** Last rung that was needed. `none`: the server and its group exited by themselves. */
export type Rung = 'none' | 'eof' | 'term' | 'kill';

export type Ladder =
  | { readonly kind: 'standing' }
  | { readonly kind: 'walking'; readonly rung: Rung; readonly untilMs: number; readonly leaderGone: boolean }
  | { readonly kind: 'done'; readonly rung: Rung; readonly left: number };

export type GroupStatus = { readonly leader: boolean; readonly followers: number };

export type LadderEffect = 'close_stdin' | 'term' | 'kill';
type LadderStep = readonly [Ladder, readonly LadderEffect[]];

export function step(ladder: Ladder, status: GroupStatus, nowMs: number, pace: LadderPace): LadderStep {
  if (ladder.kind === 'done') return [ladder, []];
  const gone = !status.leader && status.followers === 0;
  if (ladder.kind === 'standing') {
    if (gone) return [{ kind: 'done', rung: 'none', left: 0 }, []];
    if (!status.leader) return [walking('none', nowMs + pace.settleMs, true), []];
    return [walking('eof', nowMs + pace.eofMs, false), ['close_stdin']];
  }
  if (gone) return [{ kind: 'done', rung: ladder.rung, left: 0 }, []];
  if (nowMs >= ladder.untilMs) return nextRung(ladder.rung, status, nowMs, pace);
  if (!status.leader && !ladder.leaderGone) {
    const polite = ladder.rung === 'eof' || ladder.rung === 'none';
    const untilMs = polite ? Math.min(ladder.untilMs, nowMs + pace.settleMs) : ladder.untilMs;
    return [walking(ladder.rung, untilMs, true), []];
  }
  return [ladder, []];
}

function nextRung(rung: Rung, status: GroupStatus, nowMs: number, pace: LadderPace): LadderStep {
  switch (rung) {
    case 'none':
    case 'eof':
      return [walking('term', nowMs + pace.termMs, !status.leader), ['term']];
    case 'term':
      return [walking('kill', nowMs + pace.verifyMs, !status.leader), ['kill']];
    case 'kill':
      return [{ kind: 'done', rung, left: status.followers + (status.leader ? 1 : 0) }, []];
  }
}

const walking = (rung: Rung, untilMs: number, leaderGone: boolean): Ladder => ({
  kind: 'walking',
  rung,
  untilMs,
  leaderGone,
});

/** A later, shorter pace can shorten the waits of a running stop, never extend them. */
export function shortenWaits(ladder: Ladder, nowMs: number, pace: LadderPace): Ladder {
  if (ladder.kind !== 'walking' || ladder.rung === 'kill') return ladder;
  const waitMs = ladder.rung === 'term' ? pace.termMs : pace.eofMs;
  return { ...ladder, untilMs: Math.min(ladder.untilMs, nowMs + waitMs) };
}
