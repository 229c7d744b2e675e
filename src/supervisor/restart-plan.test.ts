import { describe, expect, test } from 'vitest';
import {
  charge,
  defaultPlan,
  emptyLedger,
  fullDelayMs,
  type Ledger,
  probeDelayMs,
  probeFailed,
  type RestartPlan,
  restartDelayMs,
  restartsInWindow,
} from './restart-plan.js';

const plan = { ...defaultPlan, maxRestarts: 2, windowMs: 60_000 };

test('AC-H2 two restarts are granted in the window and the third is refused', () => {
  let ledger: Ledger = emptyLedger;
  const granted = [1, 2, 3].map(() => {
    const charged = charge(ledger, 1_000, true, plan);
    ledger = charged.ledger;
    return !charged.exhausted;
  });
  expect(granted).toEqual([true, true, false]);
});

test('AC-H3 delays grow with each restart and stay below their limit', () => {
  const delays = [1, 2, 3].map((restarts) => fullDelayMs(restarts, defaultPlan));
  expect(delays).toEqual([100, 200, 400]);
  expect(fullDelayMs(19, defaultPlan)).toBe(5_000);
});

describe('the window', () => {
  test('counts a restart of exactly its own length ago, and forgets older ones', () => {
    const first = charge(emptyLedger, 0, true, plan).ledger;
    expect(restartsInWindow(first, 60_000, plan)).toBe(1);
    expect(restartsInWindow(first, 60_001, plan)).toBe(0);
    const later = charge(charge(first, 30_000, true, plan).ledger, 60_001, true, plan);
    expect(later.exhausted).toBe(false);
  });

  test('with no restart allowed, the first failure exhausts it', () => {
    expect(charge(emptyLedger, 0, true, { ...plan, maxRestarts: 0 }).exhausted).toBe(true);
  });
});

test('slow servers that never fill the window are exhausted by the number of their starts', () => {
  let ledger: Ledger = emptyLedger;
  const outcomes = [1, 2, 3, 4, 5, 6].map((start) => {
    const charged = charge(ledger, start * 3_600_000, false, defaultPlan);
    ledger = charged.ledger;
    return charged.exhausted;
  });
  expect(outcomes).toEqual([false, false, false, false, false, true]);
});

test.each([0, 1, 5, 20])(
  'W20 with a limit of %i, this many restarts are granted, and the next failure parks',
  (maxRestarts) => {
    const limited = { ...defaultPlan, maxRestarts };
    for (const apartMs of [0, 3_600_000]) {
      let ledger: Ledger = emptyLedger;
      let granted = 0;
      for (let nowMs = 0; granted <= 1_000; nowMs += apartMs) {
        const charged = charge(ledger, nowMs, false, limited);
        if (charged.exhausted) break;
        ledger = charged.ledger;
        granted++;
      }
      expect(granted).toBe(maxRestarts);
    }
  },
);

describe('chance', () => {
  test('the first restart of a proven server comes within a tenth of a second', () => {
    const { ledger } = charge(emptyLedger, 0, true, defaultPlan);
    expect(restartDelayMs(ledger, true, defaultPlan, () => 0)).toBe(0);
    expect(restartDelayMs(ledger, true, defaultPlan, () => 0.999)).toBeLessThan(100);
  });

  test('other restarts wait between half of their delay and all of it', () => {
    const ledger = { ...emptyLedger, restartsAtMs: [1, 2, 3] };
    expect(restartDelayMs(ledger, true, defaultPlan, () => 0)).toBe(200);
    expect(restartDelayMs(ledger, false, defaultPlan, () => 1)).toBe(400);
  });

  test('waits between probes double to their limit, with 20 % jitter', () => {
    const full = [0, 1, 2, 3, 50].map((failedProbes) =>
      probeDelayMs({ ...emptyLedger, failedProbes }, defaultPlan, () => 0.5),
    );
    expect(full).toEqual([60_000, 120_000, 240_000, 300_000, 300_000]);
    expect(probeDelayMs(emptyLedger, defaultPlan, () => 0)).toBe(48_000);
    expect(probeDelayMs(emptyLedger, defaultPlan, () => 1)).toBe(72_000);
  });

  test.each(['connect_failed', 'transport', 'overloaded'])(
    'W30 after %s a server without a process is probed within seconds',
    (code) => {
      const remote = { ...defaultPlan, lossProbeMsMax: 15_000 };
      const ledger = { ...emptyLedger, failedProbes: 9, parked: { reason: { code, message: '' }, atMs: 0 } };
      expect(probeDelayMs(ledger, remote, () => 0.5)).toBe(15_000);
      expect(probeDelayMs(ledger, remote, () => 1)).toBe(18_000);
      expect(probeDelayMs(ledger, defaultPlan, () => 0.5)).toBe(300_000);
    },
  );

  test.each(['timeout', 'protocol_error'])(
    'W30 after %s a server without a process is probed as seldom as one with a process',
    (code) => {
      const remote = { ...defaultPlan, lossProbeMsMax: 15_000 };
      const ledger = { ...emptyLedger, failedProbes: 9, parked: { reason: { code, message: '' }, atMs: 0 } };
      expect(probeDelayMs(ledger, remote, () => 0.5)).toBe(300_000);
    },
  );

  test('W30 a call that finds the server unreachable brings the next probe nearer, and never delays it', () => {
    const reason = { code: 'connect_failed', message: '' };
    const nextProbe = (plan: RestartPlan, nextProbeAtMs: number) => {
      const context = { nowMs: 1_000, plan, random: () => 0.5 };
      const [, next] = probeFailed(emptyLedger, { by: 'call', nextProbeAtMs }, reason, context);
      return 'nextProbeAtMs' in next && next.nextProbeAtMs;
    };
    const remote = { ...defaultPlan, lossProbeMsMax: 15_000 };
    expect([nextProbe(remote, 200_000), nextProbe(remote, 9_000)]).toEqual([16_000, 9_000]);
    expect(nextProbe(defaultPlan, 200_000)).toBe(200_000);
  });
});
