import { expect, test } from 'vitest';
import { type Random, randomInt, seededRandom } from '../kernel/random.js';
import { defaultPlan } from './restart-plan.js';
import { initialState, type ServerEvent, type ServerState, step } from './server-state.js';

/** One random run of a server. */
interface Life {
  /** The start is refused for its token, and the next token comes after this time. Undefined: not refused. */
  readonly refusedForMs: number | undefined;
  readonly startMs: number;
  /** Undefined: the server never becomes ready. */
  readonly liveMs: number | undefined;
  readonly calledAtMs: number | undefined;
  /** The machine slept, and the timer of the next start fires this much late. */
  readonly lateMs: number;
}

const hour = 3_600_000;

function randomLife(random: Random): Life {
  const pick = <T>(...values: T[]): T => values[randomInt(random, 0, values.length - 1)] as T;
  const liveMs = pick(undefined, undefined, 0, 1_000, 4_999, 5_000, 6_000, 29_999, 30_000, 200_000);
  const isCalled = liveMs !== undefined && random() < 0.5;
  return {
    refusedForMs: random() < 0.2 ? pick(0, 1_000, 299_999, 8 * hour) : undefined,
    startMs: pick(0, 10, 30_000, 120_000),
    liveMs,
    calledAtMs: isCalled ? Math.floor(random() * liveMs) : undefined,
    lateMs: random() < 0.05 ? 8 * hour : pick(0, 0, 1, 70_000),
  };
}

const retryWaitMs = (restarts: number, wasProven: boolean): number =>
  wasProven && restarts === 1 ? 50 : 0.75 * Math.min(5_000, 100 * 2 ** (restarts - 1));

/** The oracle, written directly: which run parks the server, and when each run starts. */
function oracle(lives: readonly Life[]): { readonly startsAtMs: number[]; readonly parks: boolean } {
  let nowMs = 0;
  let restarts: number[] = [];
  let unproven = 0;
  const startsAtMs: number[] = [];
  for (const { refusedForMs, startMs, liveMs, calledAtMs, lateMs } of lives) {
    startsAtMs.push(nowMs);
    // A refused token is not charged, and does not empty the ledger.
    if (refusedForMs !== undefined) {
      nowMs += refusedForMs;
      startsAtMs.push(nowMs);
    }
    nowMs += startMs + (liveMs ?? 0);
    const wasProven = liveMs !== undefined && liveMs >= (calledAtMs === undefined ? 30_000 : 5_000);
    if (wasProven) restarts = [];
    unproven = wasProven ? 0 : unproven + 1;
    restarts = [...restarts, nowMs].filter((atMs) => nowMs - atMs <= 5 * 60_000);
    if (restarts.length > 5 || unproven >= 6) return { startsAtMs, parks: true };
    nowMs += retryWaitMs(restarts.length, wasProven) + lateMs;
  }
  return { startsAtMs, parks: false };
}

/** The same runs through the real state machine. */
function machine(lives: readonly Life[]): ReturnType<typeof oracle> {
  let nowMs = 0;
  let state: ServerState = initialState(0, true);
  let wakeAtMs: number | undefined;
  const reason = { code: 'transport', message: 'gone' };
  const on = (event: ServerEvent) => {
    const [next, effects] = step(state, event, { nowMs, plan: defaultPlan, random: () => 0.5, isLazy: false });
    state = next;
    for (const effect of effects) {
      if (effect.do === 'arm') wakeAtMs = effect.atMs;
      if (effect.do === 'disarm') wakeAtMs = undefined;
    }
  };
  const until = (atMs: number) => {
    while (wakeAtMs !== undefined && wakeAtMs <= atMs) {
      nowMs = Math.max(nowMs, wakeAtMs);
      wakeAtMs = undefined;
      on({ kind: 'woke' });
    }
    nowMs = atMs;
  };
  const startsAtMs: number[] = [];
  on({ kind: 'start' });
  for (const { refusedForMs, startMs, liveMs, calledAtMs, lateMs } of lives) {
    startsAtMs.push(nowMs);
    if (refusedForMs !== undefined) {
      on({ kind: 'open_failed', run: state.run, failure: 'auth', reason });
      nowMs += refusedForMs;
      // The token or the timer causes the start, whichever is first; both may be late.
      on({ kind: nowMs >= (wakeAtMs ?? Number.NaN) ? 'woke' : 'token_changed' });
      startsAtMs.push(nowMs);
    }
    const { run } = state;
    nowMs += startMs;
    if (liveMs === undefined) on({ kind: 'open_failed', run, failure: 'transient', reason });
    else {
      const upAtMs = nowMs;
      on({ kind: 'opened', run });
      if (calledAtMs !== undefined) {
        until(upAtMs + calledAtMs);
        on({ kind: 'call_succeeded', run });
      }
      until(upAtMs + liveMs);
      on({ kind: 'lost', run, failure: 'transient', reason });
      on({ kind: 'closed', run });
    }
    if (state.kind === 'parked') return { startsAtMs, parks: true };
    nowMs = (wakeAtMs ?? Number.NaN) + lateMs;
    wakeAtMs = undefined;
    on({ kind: 'woke' });
  }
  return { startsAtMs, parks: false };
}

test('S3 the machine parks and waits exactly as the plan says, in 100,000 random histories', () => {
  const random = seededRandom(20_260_731);
  let parked = 0;
  for (let history = 0; history < 100_000; history++) {
    const lives = Array.from({ length: 8 }, () => randomLife(random));
    const expected = oracle(lives);
    const seen = machine(lives);
    const agrees =
      seen.startsAtMs.length === expected.startsAtMs.length &&
      seen.startsAtMs.every((atMs, i) => atMs === expected.startsAtMs[i]);
    if (!agrees || seen.parks !== expected.parks)
      expect({ history, lives, ...seen }).toEqual({ history, lives, ...expected });
    if (seen.parks) parked++;
  }
  // Both verdicts must be common, or the comparison says little.
  expect(parked).toBeGreaterThan(10_000);
  expect(parked).toBeLessThan(90_000);
}, 180_000);

test('S3 slow servers that never become ready are parked at their sixth start, although the window never fills', () => {
  const lives = Array.from({ length: 10 }, () => ({
    refusedForMs: undefined,
    startMs: 120_000,
    liveMs: undefined,
    calledAtMs: undefined,
    lateMs: 0,
  }));
  expect(machine(lives)).toMatchObject({ parks: true, startsAtMs: { length: 6 } });
});
