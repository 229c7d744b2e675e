/**
 * How a child is stopped, as a pure function: close its stdin, then SIGTERM, then SIGKILL, each after a fair wait, until
 * its whole group is gone.
 * Not here: looking at processes, closing and signalling (child.ts performs the effects and says what it sees).
 * Invariant: every walk ends. The last rung has a limit too; what then still lives is reported in `left`, not waited for.
 */
export interface LadderPace {
  /** How long a server may take to leave after its stdin was closed, before SIGTERM. */
  readonly eofMs: number;
  /** How long its group may take after SIGTERM, before SIGKILL. */
  readonly termMs: number;
  /** When only the leader has gone: what the rest of the group gets to follow it, before SIGTERM. */
  readonly settleMs: number;
  /** How long to look for the group's end after SIGKILL; processes stuck in the kernel can outlast it. */
  readonly verifyMs: number;
}

export const DEFAULT_PACE: LadderPace = { eofMs: 2_000, termMs: 3_000, settleMs: 50, verifyMs: 2_000 };

/** For a server that broke the rules: no courtesy, but still one chance to put its own children down. */
export const ABUSE_PACE: LadderPace = { eofMs: 0, termMs: 250, settleMs: 0, verifyMs: 2_000 };

/** How far down the walk had to go. `none`: the server left by itself and took its group along. */
export type Rung = 'none' | 'eof' | 'term' | 'kill';

export type Ladder =
  | { readonly kind: 'standing' }
  | { readonly kind: 'walking'; readonly rung: Rung; readonly untilMs: number; readonly leaderGone: boolean }
  | { readonly kind: 'done'; readonly rung: Rung; readonly left: number };

/** What can be seen of the group: its leader, only followers (and how many), or nobody. */
export type Sight = { readonly leader: boolean; readonly followers: number };

export type LadderEffect = 'close_stdin' | 'term' | 'kill';
type LadderStep = readonly [Ladder, readonly LadderEffect[]];

export function step(ladder: Ladder, sight: Sight, nowMs: number, pace: LadderPace): LadderStep {
  if (ladder.kind === 'done') return [ladder, []];
  const gone = !sight.leader && sight.followers === 0;
  if (ladder.kind === 'standing') {
    if (gone) return [{ kind: 'done', rung: 'none', left: 0 }, []];
    if (!sight.leader) return [walking('none', nowMs + pace.settleMs, true), []];
    return [walking('eof', nowMs + pace.eofMs, false), ['close_stdin']];
  }
  if (gone) return [{ kind: 'done', rung: ladder.rung, left: 0 }, []];
  if (nowMs >= ladder.untilMs) return descend(ladder.rung, sight, nowMs, pace);
  if (!sight.leader && !ladder.leaderGone) {
    const polite = ladder.rung === 'eof' || ladder.rung === 'none';
    const untilMs = polite ? Math.min(ladder.untilMs, nowMs + pace.settleMs) : ladder.untilMs;
    return [walking(ladder.rung, untilMs, true), []];
  }
  return [ladder, []];
}

function descend(rung: Rung, sight: Sight, nowMs: number, pace: LadderPace): LadderStep {
  switch (rung) {
    case 'none':
    case 'eof':
      return [walking('term', nowMs + pace.termMs, !sight.leader), ['term']];
    case 'term':
      return [walking('kill', nowMs + pace.verifyMs, !sight.leader), ['kill']];
    case 'kill':
      return [{ kind: 'done', rung, left: sight.followers + (sight.leader ? 1 : 0) }, []];
  }
}

const walking = (rung: Rung, untilMs: number, leaderGone: boolean): Ladder => ({
  kind: 'walking',
  rung,
  untilMs,
  leaderGone,
});

/** A walk under way may be hurried by a second, less patient request, never slowed down. */
export function hurry(ladder: Ladder, nowMs: number, pace: LadderPace): Ladder {
  if (ladder.kind !== 'walking' || ladder.rung === 'kill') return ladder;
  const waitMs = ladder.rung === 'term' ? pace.termMs : pace.eofMs;
  return { ...ladder, untilMs: Math.min(ladder.untilMs, nowMs + waitMs) };
}
