import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type Admission, Breaker, type BreakerPlan, defaultBreakerPlan, type Ticket } from './breaker.js';

const plan: BreakerPlan = { threshold: 3, resetMs: 100, resetMsMax: 1_000, probeMs: 50 };
const far = Number.MAX_SAFE_INTEGER;

function ticketOf(admission: Admission): Ticket {
  if (!admission.admitted) throw new Error('refused');
  return admission.ticket;
}

function opened(custom: Partial<BreakerPlan> = {}) {
  const breaker = new Breaker({ ...plan, ...custom });
  const tickets = Array.from({ length: custom.threshold ?? plan.threshold }, () => ticketOf(breaker.admit(0, far)));
  for (const ticket of tickets) breaker.failed(ticket, 0);
  return breaker;
}

test('AC-H1 closed until the third failure, open from it on, half open when its time is over', () => {
  const breaker = new Breaker(plan);
  const fail = () => breaker.failed(ticketOf(breaker.admit(0, far)), 0);
  expect(breaker.circuit(0)).toBe('closed');
  fail();
  fail();
  expect(breaker.circuit(0)).toBe('closed');
  fail();
  expect(breaker.circuit(0)).toBe('open');
  expect(breaker.circuit(200)).toBe('half_open');
});

describe('what is told of it', () => {
  function told(custom: Partial<BreakerPlan> = {}) {
    const changes: unknown[] = [];
    const breaker = new Breaker({ ...plan, ...custom }, (from, to, failures) => changes.push([from, to, failures]));
    const fail = (nowMs: number) => breaker.failed(ticketOf(breaker.admit(nowMs, far)), nowMs);
    return { breaker, changes, fail };
  }

  test('each change once, with the failures as they then stand', () => {
    const { breaker, changes, fail } = told();
    for (let i = 0; i < 3; i++) fail(0);
    breaker.admit(50, far);
    fail(100);
    breaker.succeeded(ticketOf(breaker.admit(300, far)), 301);
    expect(changes).toEqual([
      ['closed', 'open', 3],
      ['open', 'half_open', 3],
      ['half_open', 'open', 4],
      ['open', 'half_open', 4],
      ['half_open', 'closed', 0],
    ]);
  });

  test('nothing while it is closed, whatever calls do, and nothing of a reset that changes nothing', () => {
    const { breaker, changes, fail } = told();
    fail(0);
    breaker.succeeded(ticketOf(breaker.admit(0, far)), 0);
    breaker.reset();
    expect(changes).toEqual([]);
  });

  test('a probe that is given up leaves it half open: the next one is no change', () => {
    const { breaker, changes, fail } = told({ threshold: 1 });
    fail(0);
    breaker.released(ticketOf(breaker.admit(100, far)), 101);
    breaker.admit(101, far);
    breaker.reset();
    expect(changes).toEqual([
      ['closed', 'open', 1],
      ['open', 'half_open', 1],
      ['half_open', 'closed', 0],
    ]);
  });

  test('a probe that never answers is told when it is noticed', () => {
    const { breaker, changes, fail } = told({ threshold: 1 });
    fail(0);
    breaker.admit(100, far);
    expect(breaker.circuit(160)).toBe('open');
    expect(changes.at(-1)).toEqual(['half_open', 'open', 2]);
  });
});

test('AC-H10 two failures and a success leave nothing behind', () => {
  const breaker = new Breaker(plan);
  breaker.failed(ticketOf(breaker.admit(0, far)), 0);
  breaker.failed(ticketOf(breaker.admit(0, far)), 0);
  breaker.succeeded(ticketOf(breaker.admit(0, far)), 0);
  expect([breaker.failures, breaker.opensAgainAtMs(0)]).toEqual([0, undefined]);
});

describe('D-01 one probe', () => {
  test('of fifty calls that come when the time is over, one passes', () => {
    const breaker = opened();
    const admissions = Array.from({ length: 50 }, () => breaker.admit(100, far));
    expect(admissions.filter(({ admitted }) => admitted)).toHaveLength(1);
    expect(admissions[1]).toMatchObject({ admitted: false, probeInProgress: true, retryAfterMs: 50 });
    breaker.succeeded(ticketOf(admissions[0] as Admission), 110);
    expect(Array.from({ length: 50 }, () => breaker.admit(110, far).admitted)).not.toContain(false);
  });

  test('that is abandoned frees its place', () => {
    const breaker = opened();
    breaker.released(ticketOf(breaker.admit(100, far)), 110);
    expect(breaker.admit(110, far).admitted).toBe(true);
  });

  test('that never answers has failed at its own deadline, which is never later than its caller’s', () => {
    const breaker = opened();
    const probe = ticketOf(breaker.admit(100, 120));
    expect(probe.probeUntilMs).toBe(120);
    expect(breaker.circuit(120)).toBe('open');
    breaker.succeeded(probe, 121);
    expect(breaker.circuit(121)).toBe('open');
  });

  test('D-37 that said nothing about the server is no failure, though its deadline is over', () => {
    for (const nowMs of [150, 151, 1_000]) {
      const breaker = opened();
      const probe = ticketOf(breaker.admit(100, far));
      // Somebody may have looked in between, or not.
      if (nowMs > 150) expect(breaker.circuit(150)).toBe('open');
      breaker.released(probe, nowMs);
      expect([breaker.failures, breaker.circuit(nowMs), breaker.opensAgainAtMs(nowMs)]).toEqual([
        3,
        'half_open',
        nowMs,
      ]);
      breaker.failed(ticketOf(breaker.admit(nowMs, far)), nowMs);
      expect(breaker.opensAgainAtMs(nowMs)).toBe(nowMs + 200);
      breaker.released(probe, nowMs);
      expect(breaker.opensAgainAtMs(nowMs)).toBe(nowMs + 200);
    }
  });

  test('that fails makes the next wait twice as long, to a limit', () => {
    const breaker = opened();
    let nowMs = 0;
    const waits = Array.from({ length: 6 }, () => {
      const untilMs = breaker.opensAgainAtMs(nowMs) as number;
      const waitMs = untilMs - nowMs;
      nowMs = untilMs;
      breaker.failed(ticketOf(breaker.admit(nowMs, far)), nowMs);
      return waitMs;
    });
    expect(waits).toEqual([100, 200, 400, 800, 1_000, 1_000]);
  });
});

describe('late outcomes', () => {
  test('of calls sent before it opened neither close it nor prolong it', () => {
    const breaker = new Breaker(plan);
    const tickets = Array.from({ length: 5 }, () => ticketOf(breaker.admit(0, far)));
    for (const ticket of tickets.slice(0, 3)) breaker.failed(ticket, 0);
    const untilMs = breaker.opensAgainAtMs(0);
    breaker.succeeded(tickets[3] as Ticket, 10);
    breaker.failed(tickets[4] as Ticket, 10);
    expect([breaker.circuit(10), breaker.opensAgainAtMs(10)]).toEqual(['open', untilMs]);
  });

  test('of calls of a closed period do not count in the next', () => {
    const breaker = new Breaker(plan);
    const early = Array.from({ length: 3 }, () => ticketOf(breaker.admit(0, far)));
    for (const ticket of Array.from({ length: 3 }, () => ticketOf(breaker.admit(0, far)))) breaker.failed(ticket, 0);
    breaker.reset();
    for (const ticket of early) breaker.failed(ticket, 1);
    expect(breaker.circuit(1)).toBe('closed');
  });
});

test.each([0, 1])('a threshold of %i opens it on the first failure', (threshold) => {
  const breaker = new Breaker({ ...plan, threshold });
  breaker.failed(ticketOf(breaker.admit(0, far)), 0);
  expect(breaker.circuit(0)).toBe('open');
});

test('a newer run of the server closes it at once', () => {
  const breaker = opened();
  breaker.reset();
  expect([breaker.circuit(0), breaker.failures]).toEqual(['closed', 0]);
});

/** A million `expect`s would take longer than what they check. */
function agree(actual: unknown, expected: unknown): void {
  if (actual !== expected) throw new Error(`breaker says ${actual}, oracle ${expected}`);
}

test('K2 against an oracle: 0 disagreements in 1,000,000 random outcomes and clock steps', () => {
  const action = fc.record({
    do: fc.constantFrom('admit', 'succeed', 'fail', 'release', 'reset', 'advance'),
    which: fc.nat({ max: 5 }),
    byMs: fc.constantFrom(0, 1, 49, 50, 99, 100, 1_000),
  });
  let steps = 0;
  fc.assert(
    fc.property(fc.array(action, { minLength: 100, maxLength: 100 }), (actions) => {
      const breaker = new Breaker(plan);
      // The oracle keeps what the rules speak of, and nothing else.
      let nowMs = 0;
      let failures = 0;
      let untilMs: number | undefined;
      let failedProbes = 0;
      let probe: { ticket: Ticket; untilMs: number } | undefined;
      let overdue: Ticket | undefined;
      let live: Ticket[] = [];
      const open = (atMs: number) => {
        untilMs = atMs + Math.min(100 * 2 ** failedProbes, 1_000);
        probe = overdue = undefined;
        live = [];
      };
      const close = () => {
        if (untilMs !== undefined) live = [];
        failures = failedProbes = 0;
        untilMs = probe = overdue = undefined;
      };
      const expire = () => {
        if (probe && nowMs >= probe.untilMs) {
          failures++;
          failedProbes++;
          const { ticket } = probe;
          open(probe.untilMs);
          overdue = ticket;
        }
      };
      const tickets: Ticket[] = [];
      for (const { do: what, which, byMs } of actions) {
        steps++;
        expire();
        const ticket = tickets[tickets.length - 1 - which];
        if (what === 'advance') nowMs += byMs;
        else if (what === 'reset') {
          breaker.reset();
          close();
        } else if (what === 'admit') {
          const admission = breaker.admit(nowMs, far);
          const isDue = untilMs !== undefined && nowMs >= untilMs && !probe;
          agree(admission.admitted, untilMs === undefined || isDue);
          if (!admission.admitted) continue;
          tickets.push(admission.ticket);
          agree(admission.ticket.isProbe, isDue);
          if (isDue) {
            probe = { ticket: admission.ticket, untilMs: nowMs + 50 };
            overdue = undefined;
          } else live.push(admission.ticket);
        } else if (ticket) {
          const isProbe = probe?.ticket === ticket;
          const isLive = live.includes(ticket);
          if (what === 'succeed') {
            breaker.succeeded(ticket, nowMs);
            if (isProbe || isLive) close();
          } else if (what === 'fail') {
            breaker.failed(ticket, nowMs);
            if (isProbe) {
              failures++;
              failedProbes++;
              open(nowMs);
            } else if (isLive && ++failures >= 3) {
              failedProbes = 0;
              open(nowMs);
            }
          } else {
            breaker.released(ticket, nowMs);
            if (ticket === overdue) {
              failures--;
              failedProbes--;
            }
            if (isProbe || ticket === overdue) {
              probe = overdue = undefined;
              untilMs = nowMs;
            }
          }
        }
        expire();
        const circuit = untilMs === undefined ? 'closed' : nowMs < untilMs && !probe ? 'open' : 'half_open';
        agree(breaker.circuit(nowMs), circuit);
        agree(breaker.failures, failures);
      }
    }),
    { numRuns: 10_000 },
  );
  expect(steps).toBe(1_000_000);
  expect(defaultBreakerPlan).toEqual({ threshold: 5, resetMs: 30_000, resetMsMax: 300_000, probeMs: 5_000 });
}, 180_000);
