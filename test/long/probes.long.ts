/**
 * K1 at full count: a breaker is open a thousand times, and each time ten thousand callers come at its end. Chance decides their order
 * and the outcome of the trial. The test uses the breaker alone; src/policy/breaker-stage.test.ts has the stage in front of it.
 */
import { expect, test } from 'vitest';
import { randomInt, seededRandom } from '../../src/kernel/random.js';
import { type Admission, Breaker, defaultBreakerPlan, type Ticket } from '../../src/policy/breaker.js';

const callers = 10_000;
const rounds = Number(process.env.ROUNDS ?? 1_000);
const seed = Number(process.env.SEED ?? Math.floor(Math.random() * 1e9));
/** No call queues behind the trial: a refused caller is answered within this time … */
const refusedWithinMs = 5;
/** … except for one in this many, because of other load of the machine. */
const refusalsPerSlow = 10_000;

/** How a trial ends; with `silence` it never ends. */
const ends = ['success', 'failure', 'nothing said', 'silence'] as const;

test(`K1 of ${callers} callers exactly one is the trial, in each of ${rounds} rounds`, () => {
  const random = seededRandom(seed);
  const breaker = new Breaker(defaultBreakerPlan);
  const seen = { trials: 0, refused: 0, slow: 0, slowestMs: 0, ...Object.fromEntries(ends.map((end) => [end, 0])) };
  let nowMs = 0;

  /** All at once, from just before the end of the open time to just after it. */
  const crowd = (): Ticket[] => {
    const endMs = breaker.opensAgainAtMs(nowMs) as number;
    const arrivals = Array.from({ length: callers }, () => endMs + randomInt(random, -2, 2)).sort((a, b) => a - b);
    const trials: Ticket[] = [];
    for (const atMs of arrivals) {
      nowMs = Math.max(nowMs, atMs);
      const beganMs = performance.now();
      const admission: Admission = breaker.admit(nowMs);
      const tookMs = performance.now() - beganMs;
      if (tookMs > refusedWithinMs) seen.slow++;
      seen.slowestMs = Math.max(seen.slowestMs, tookMs);
      if (!admission.admitted) seen.refused++;
      else trials.push(admission.ticket);
    }
    return trials;
  };

  const reopen = () => {
    for (let failures = 0; failures < defaultBreakerPlan.threshold; failures++) {
      const admission = breaker.admit(nowMs);
      if (admission.admitted) breaker.failed(admission.ticket, nowMs, 'timeout');
    }
  };

  reopen();
  for (let round = 0; round < rounds; round++) {
    const trials = crowd();
    if (trials.length !== 1 || trials[0]?.isTrial !== true)
      expect.fail(`seed ${seed}: ${trials.length} in round ${round}`);
    const [trial] = trials as [Ticket];
    seen.trials++;
    const end = ends[randomInt(random, 0, ends.length - 1)] as (typeof ends)[number];
    (seen as Record<string, number>)[end] = ((seen as Record<string, number>)[end] ?? 0) + 1;
    nowMs += randomInt(random, 0, 1_000);
    if (end === 'success') {
      breaker.succeeded(trial);
      expect(breaker.circuit(nowMs)).toBe('closed');
      reopen();
    } else if (end === 'failure') {
      breaker.failed(trial, nowMs, 'timeout');
    } else if (end === 'nothing said') {
      breaker.released(trial);
      // The place of the trial is free again at once, for a call of the next round.
      expect(breaker.circuit(nowMs)).toBe('half_open');
    } else {
      // The silent trial delays the others for a while, and the breaker does not end it: two more are admitted, and fail.
      const moreAtMs = breaker.opensAgainAtMs(nowMs) as number;
      expect(breaker.admit(moreAtMs - 1).admitted).toBe(false);
      nowMs = moreAtMs;
      const more = Array.from({ length: 10 }, () => breaker.admit(nowMs)).flatMap((each) =>
        each.admitted ? [each.ticket] : [],
      );
      expect(more).toHaveLength(2);
      breaker.failed(more[0] as Ticket, nowMs, 'timeout');
      // A later outcome of the first trial changes nothing.
      breaker.succeeded(trial);
    }
    expect(breaker.circuit(nowMs)).not.toBe('closed');
  }
  console.log(`K1 seed ${seed}: ${JSON.stringify(seen)}`);
  expect(seen.trials).toBe(rounds);
  expect(seen.refused).toBe(rounds * (callers - 1));
  expect(seen.slow).toBeLessThanOrEqual(seen.refused / refusalsPerSlow);
});
