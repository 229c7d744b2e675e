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

/** Last rung that was needed. `none`: the server and its group exited without it. */
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
