import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type Admission, Breaker, type BreakerPlan, defaultBreakerPlan, type Strike, type Ticket } from './breaker.js';

const plan: BreakerPlan = {
  threshold: 3,
  resetMs: 100,
  resetMsMax: 1_000,
  lossMs: 25,
  trialMs: 50,
  checkMs: 10,
  checkMsMax: 60,
};

function ticketOf(admission: Admission): Ticket {
  if (!admission.admitted) throw new Error('refused');
  return admission.ticket;
}

function opened(custom: Partial<BreakerPlan> = {}) {
  const breaker = new Breaker({ ...plan, ...custom });
  const tickets = Array.from({ length: custom.threshold ?? plan.threshold }, () => ticketOf(breaker.admit(0)));
  for (const ticket of tickets) breaker.failed(ticket, 0, 'timeout');
  return breaker;
}

test('AC-H1 the breaker is closed until the third failure, then open, and half open after the open time', () => {
  const breaker = new Breaker(plan);
  const fail = () => breaker.failed(ticketOf(breaker.admit(0)), 0, 'timeout');
  expect(breaker.circuit(0)).toBe('closed');
  fail();
  fail();
  expect(breaker.circuit(0)).toBe('closed');
  fail();
  expect(breaker.circuit(0)).toBe('open');
  expect(breaker.circuit(200)).toBe('half_open');
});

describe('change events of the breaker', () => {
  function told(custom: Partial<BreakerPlan> = {}) {
    const changes: unknown[] = [];
    const breaker = new Breaker({ ...plan, ...custom }, (from, to, failures) => changes.push([from, to, failures]));
    const fail = (nowMs: number) => breaker.failed(ticketOf(breaker.admit(nowMs)), nowMs, 'timeout');
    return { breaker, changes, fail };
  }

  test('report each change once, with the current number of failures', () => {
    const { breaker, changes, fail } = told();
    for (let i = 0; i < 3; i++) fail(0);
    breaker.admit(50);
    fail(100);
    breaker.succeeded(ticketOf(breaker.admit(300)));
    expect(changes).toEqual([
      ['closed', 'open', 3],
      ['open', 'half_open', 3],
      ['half_open', 'open', 4],
      ['open', 'half_open', 4],
      ['half_open', 'closed', 0],
    ]);
  });

  test('report nothing while the breaker is closed, and nothing for a reset without effect', () => {
    const { breaker, changes, fail } = told();
    fail(0);
    breaker.succeeded(ticketOf(breaker.admit(0)));
    breaker.reset();
    expect(changes).toEqual([]);
  });

  test('a trial that is given up leaves the breaker half open: the next trial is no change', () => {
    const { breaker, changes, fail } = told({ threshold: 1 });
    fail(0);
    breaker.released(ticketOf(breaker.admit(100)));
    breaker.admit(101);
    breaker.reset();
    expect(changes).toEqual([
      ['closed', 'open', 1],
      ['open', 'half_open', 1],
      ['half_open', 'closed', 0],
    ]);
  });
});

test('AC-H10 a success after two failures resets them', () => {
  const breaker = new Breaker(plan);
  breaker.failed(ticketOf(breaker.admit(0)), 0, 'timeout');
  breaker.failed(ticketOf(breaker.admit(0)), 0, 'timeout');
  breaker.succeeded(ticketOf(breaker.admit(0)));
  expect([breaker.failures, breaker.opensAgainAtMs(0)]).toEqual([0, undefined]);
});

describe('D-01 one trial', () => {
  test('of fifty calls after the open time, one passes', () => {
    const breaker = opened();
    const admissions = Array.from({ length: 50 }, () => breaker.admit(100));
    expect(admissions.filter(({ admitted }) => admitted)).toHaveLength(1);
    expect(admissions[0]).toMatchObject({ ticket: { isTrial: true, isFirst: true } });
    expect(admissions[1]).toMatchObject({ admitted: false, isTried: true, retryAfterMs: 50 });
    breaker.succeeded(ticketOf(admissions[0] as Admission));
    expect(Array.from({ length: 50 }, () => breaker.admit(110).admitted)).not.toContain(false);
  });

  test('D-37 without evidence about the server frees its place and is no failure, whenever it ends', () => {
    for (const nowMs of [100, 149, 1_000]) {
      const breaker = opened();
      const trial = ticketOf(breaker.admit(100));
      breaker.released(trial);
      expect([breaker.failures, breaker.circuit(nowMs), breaker.opensAgainAtMs(nowMs)]).toEqual([
        3,
        'half_open',
        nowMs,
      ]);
      // The next trial is alone again: for the rest of the current series, or for the full time if it begins a new series.
      expect(ticketOf(breaker.admit(nowMs))).toMatchObject({ isFirst: true });
      expect(breaker.opensAgainAtMs(nowMs)).toBe(nowMs < 1_000 ? 150 : 1_050);
    }
  });

  test('that fails makes the next wait twice as long, up to a limit', () => {
    const breaker = opened();
    let nowMs = 0;
    const waits = Array.from({ length: 6 }, () => {
      const untilMs = breaker.opensAgainAtMs(nowMs) as number;
      const waitMs = untilMs - nowMs;
      nowMs = untilMs;
      breaker.failed(ticketOf(breaker.admit(nowMs)), nowMs, 'timeout');
      return waitMs;
    });
    expect(waits).toEqual([100, 200, 400, 800, 1_000, 1_000]);
  });
});

describe('W9 a slow trial', () => {
  const trialsAt = (breaker: Breaker, nowMs: number) =>
    Array.from({ length: 1_000 }, () => breaker.admit(nowMs))
      .filter(({ admitted }) => admitted)
      .map(ticketOf);

  test('is alone at first; then two more are admitted, then four, doubling', () => {
    const breaker = opened();
    const admitted = [100, 149, 150, 199, 200, 250, 300].map((nowMs) => trialsAt(breaker, nowMs).length);
    expect(admitted).toEqual([1, 0, 2, 0, 4, 8, 16]);
    expect([breaker.circuit(300), breaker.failures]).toEqual(['half_open', 3]);
    expect(breaker.admit(301)).toMatchObject({ admitted: false, isTried: true, retryAfterMs: 49 });
  });

  test('is the only trial that a check of the session precedes', () => {
    const breaker = opened();
    const trials = [...trialsAt(breaker, 100), ...trialsAt(breaker, 150)];
    expect(trials.map(({ isFirst }) => isFirst)).toEqual([true, false, false]);
  });

  test.each([0, 1, 2])('the first success of any trial closes the breaker: trial %i', (which) => {
    const breaker = opened();
    const trials = [...trialsAt(breaker, 100), ...trialsAt(breaker, 150)];
    breaker.succeeded(trials[which] as Ticket);
    expect([breaker.circuit(160), breaker.failures]).toEqual(['closed', 0]);
    // The outcomes of the other trials no longer count.
    for (const trial of trials) for (let i = 0; i < 5; i++) breaker.failed(trial, 160, 'timeout');
    expect([breaker.circuit(160), breaker.failures]).toEqual(['closed', 0]);
  });

  test.each([0, 1, 2])('the first failure of any trial opens the breaker for twice as long: trial %i', (which) => {
    const breaker = opened();
    const trials = [...trialsAt(breaker, 100), ...trialsAt(breaker, 150)];
    breaker.failed(trials[which] as Ticket, 160, 'timeout');
    for (const trial of trials) {
      breaker.succeeded(trial);
      breaker.failed(trial, 170, 'timeout');
    }
    expect([breaker.circuit(359), breaker.failures, breaker.opensAgainAtMs(170)]).toEqual(['open', 4, 360]);
  });

  test('a check beforehand that is not answered is a failed trial, also when the caller of the trial has left', () => {
    const breaker = opened();
    const trial = ticketOf(breaker.admit(100));
    breaker.released(trial);
    breaker.checkFailed(trial, 110, 'loss');
    breaker.checkFailed(trial, 120, 'loss');
    expect([breaker.circuit(120), breaker.failures, breaker.opensAgainAtMs(120)]).toEqual(['open', 4, 310]);
    expect(breaker.checkAtMs).toBe(120);
  });

  test('callers that begin a trial and leave, one after the other, delay other callers for a bounded time', () => {
    const breaker = opened();
    // A caller that leaves just before others are admitted, and returns at once.
    let trial = ticketOf(breaker.admit(100));
    expect(breaker.admit(120).admitted).toBe(false);
    breaker.released(trial);
    trial = ticketOf(breaker.admit(149));
    expect([trial.isFirst, breaker.admit(149).admitted, trialsAt(breaker, 150).length]).toEqual([true, false, 2]);
  });

  test('is alone again if no call was a trial for a while', () => {
    const breaker = opened();
    breaker.released(ticketOf(breaker.admit(100)));
    expect(trialsAt(breaker, 200)).toHaveLength(7);
    const other = opened();
    other.released(ticketOf(other.admit(100)));
    expect([trialsAt(other, 201).length, trialsAt(other, 251).length]).toEqual([1, 2]);
  });

  test('a trial that ends without evidence makes room for one more trial', () => {
    const breaker = opened();
    const trials = [...trialsAt(breaker, 100), ...trialsAt(breaker, 150)];
    breaker.released(trials[1] as Ticket);
    breaker.released(trials[1] as Ticket);
    expect(trialsAt(breaker, 160)).toHaveLength(1);
  });
});

describe('W12 losses', () => {
  const losing = () => {
    const breaker = new Breaker(plan);
    return { breaker, lose: (nowMs: number) => breaker.failed(ticketOf(breaker.admit(nowMs)), nowMs, 'loss') };
  };

  test('that follow a counted loss within `lossMs` do not count, however many there are', () => {
    const { breaker, lose } = losing();
    for (let nowMs = 0; nowMs <= 25; nowMs++) lose(nowMs);
    expect(breaker.failures).toBe(1);
    for (let nowMs = 26; nowMs <= 51; nowMs++) lose(nowMs);
    expect([breaker.failures, breaker.isClosed]).toEqual([2, true]);
    lose(52);
    expect(breaker.circuit(52)).toBe('open');
  });

  test('that follow within `lossMs` do not count even if a call was answered in between', () => {
    const { breaker, lose } = losing();
    lose(0);
    breaker.succeeded(ticketOf(breaker.admit(1)));
    lose(2);
    expect(breaker.failures).toBe(0);
  });

  test('do not hide timeouts: each timeout counts', () => {
    const { breaker, lose } = losing();
    lose(0);
    breaker.failed(ticketOf(breaker.admit(1)), 1, 'timeout');
    breaker.failed(ticketOf(breaker.admit(1)), 1, 'timeout');
    expect(breaker.circuit(1)).toBe('open');
  });

  test('of an older run do not hide the first loss of the next run', () => {
    const { breaker, lose } = losing();
    lose(0);
    breaker.reset();
    lose(1);
    expect(breaker.failures).toBe(1);
  });
});

describe('W6 own checks of the host', () => {
  const openedBy = (strike: Strike) => {
    const breaker = new Breaker({ ...plan, threshold: 1 });
    breaker.failed(ticketOf(breaker.admit(0)), 0, strike);
    return breaker;
  };

  test('follow a loss, after a wait that doubles up to a limit', () => {
    const breaker = openedBy('loss');
    const waits: number[] = [];
    for (let nowMs = 0; waits.length < 6; ) {
      const atMs = breaker.checkAtMs as number;
      waits.push(atMs - nowMs);
      nowMs = atMs;
      breaker.checked(false, nowMs);
    }
    expect(waits).toEqual([10, 20, 40, 60, 60, 60]);
    expect(breaker.opensAgainAtMs(0)).toBe(100);
  });

  test.each(['timeout', 'protocol'] as const)(
    'do not follow a strike of kind %s: the open time has to pass',
    (strike) => {
      const breaker = openedBy(strike);
      expect(breaker.checkAtMs).toBeUndefined();
      breaker.checked(true, 10);
      expect(breaker.circuit(99)).toBe('open');
    },
  );

  test('that are answered make the breaker half-open at once, and this is reported', () => {
    const changes: unknown[] = [];
    const breaker = new Breaker({ ...plan, threshold: 1 }, (...change) => changes.push(change));
    breaker.failed(ticketOf(breaker.admit(0)), 0, 'loss');
    breaker.checked(true, 10);
    expect([breaker.circuit(10), breaker.checkAtMs, breaker.opensAgainAtMs(10)]).toEqual(['half_open', undefined, 10]);
    expect(changes.at(-1)).toEqual(['open', 'half_open', 1]);
    expect(ticketOf(breaker.admit(10))).toMatchObject({ isTrial: true, isFirst: true });
  });

  test.each([
    ['loss', 1, 'half_open'],
    ['loss', 0, 'open'],
    ['timeout', 1, 'open'],
  ] as const)(
    'are replaced by the answer to a call that was sent after the breaker opened: %s, sent %i ms later, then %s',
    (strike, sentAtMs, now) => {
      const breaker = new Breaker({ ...plan, threshold: 1 });
      const early = ticketOf(breaker.admit(0));
      breaker.failed(ticketOf(breaker.admit(0)), 0, strike);
      breaker.succeeded(early, sentAtMs);
      expect(breaker.circuit(5)).toBe(now);
    },
  );

  test('follow after growing waits if a server answers them but no call', () => {
    const breaker = openedBy('loss');
    const waits: number[] = [];
    for (let nowMs = 0; waits.length < 5; ) {
      const atMs = breaker.checkAtMs as number;
      waits.push(atMs - nowMs);
      nowMs = atMs;
      breaker.checked(true, nowMs);
      breaker.failed(ticketOf(breaker.admit(nowMs)), nowMs, 'loss');
    }
    expect(waits).toEqual([10, 20, 40, 60, 60]);
    breaker.reset();
    breaker.failed(ticketOf(breaker.admit(0)), 0, 'loss');
    expect(breaker.checkAtMs).toBe(10);
  });

  test.each(['timeout', 'protocol'] as const)(
    'go on when the check before a trial ends with a strike of kind %s',
    (strike) => {
      const breaker = openedBy('loss');
      breaker.checkFailed(ticketOf(breaker.admit(100)), 100, strike);
      expect([breaker.circuit(100), breaker.checkAtMs]).toEqual(['open', 110]);
      // Also when an own check of the host had made the breaker half-open.
      breaker.checked(true, 110);
      breaker.checkFailed(ticketOf(breaker.admit(110)), 110, strike);
      expect(breaker.checkAtMs).toBe(130);
    },
  );

  test('do not begin after a failed check before a trial if a timeout had opened the breaker', () => {
    const breaker = openedBy('timeout');
    breaker.checkFailed(ticketOf(breaker.admit(100)), 100, 'timeout');
    expect([breaker.circuit(100), breaker.checkAtMs]).toEqual(['open', undefined]);
  });

  test('end with a trial that times out, and begin with a trial whose connection is lost', () => {
    const breaker = openedBy('loss');
    breaker.failed(ticketOf(breaker.admit(100)), 100, 'timeout');
    expect([breaker.circuit(100), breaker.checkAtMs]).toEqual(['open', undefined]);
    breaker.failed(ticketOf(breaker.admit(300)), 300, 'loss');
    expect(breaker.checkAtMs).toBe(310);
  });
});

describe('late outcomes', () => {
  test('of calls sent before the breaker opened neither close it nor prolong its open time', () => {
    const breaker = new Breaker(plan);
    const tickets = Array.from({ length: 5 }, () => ticketOf(breaker.admit(0)));
    for (const ticket of tickets.slice(0, 3)) breaker.failed(ticket, 0, 'timeout');
    const untilMs = breaker.opensAgainAtMs(0);
    breaker.succeeded(tickets[3] as Ticket);
    breaker.failed(tickets[4] as Ticket, 10, 'timeout');
    expect([breaker.circuit(10), breaker.opensAgainAtMs(10)]).toEqual(['open', untilMs]);
  });

  test('E4 of calls to a server that has ended are ignored', () => {
    const changes: string[] = [];
    const breaker = new Breaker(plan, (from, to) => changes.push(`${from} ${to}`));
    const tickets = Array.from({ length: 3 }, () => ticketOf(breaker.admit(0)));
    breaker.retire();
    for (const ticket of tickets) breaker.failed(ticket, 1, 'timeout');
    expect([breaker.circuit(1), breaker.failures, changes]).toEqual(['closed', 0, []]);
  });

  test('of calls of one closed period do not count in the next closed period', () => {
    const breaker = new Breaker(plan);
    const early = Array.from({ length: 3 }, () => ticketOf(breaker.admit(0)));
    for (const ticket of Array.from({ length: 3 }, () => ticketOf(breaker.admit(0))))
      breaker.failed(ticket, 0, 'timeout');
    breaker.reset();
    for (const ticket of early) breaker.failed(ticket, 1, 'timeout');
    expect(breaker.circuit(1)).toBe('closed');
  });
});

test.each([0, 1])('a threshold of %i opens the breaker on the first failure', (threshold) => {
  const breaker = new Breaker({ ...plan, threshold });
  breaker.failed(ticketOf(breaker.admit(0)), 0, 'timeout');
  expect(breaker.circuit(0)).toBe('open');
});

test('the outcome of a call counts even if the call was admitted before its run of the server was open', () => {
  const breaker = new Breaker(plan);
  const early = ticketOf(breaker.admit(0));
  breaker.reset();
  breaker.failed(early, 1, 'timeout');
  expect(breaker.failures).toBe(1);
});

test('a newer run of the server closes the breaker at once', () => {
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
    do: fc.constantFrom('admit', 'admit', 'succeed', 'fail', 'release', 'check', 'reset', 'advance'),
    which: fc.nat({ max: 5 }),
    byMs: fc.constantFrom(0, 1, 10, 25, 26, 49, 50, 99, 100, 1_000),
    strike: fc.constantFrom<Strike>('loss', 'timeout', 'protocol'),
  });
  let steps = 0;
  fc.assert(
    fc.property(fc.array(action, { minLength: 100, maxLength: 100 }), (actions) => {
      const breaker = new Breaker(plan);
      // The oracle has only the values that the rules name.
      let nowMs = 0;
      let failures = 0;
      let lostAtMs: number | undefined;
      /** Meaningful only while the breaker is open. */
      let openedAtMs = 0;
      let untilMs: number | undefined;
      let checkAtMs: number | undefined;
      let isHalfOpen = false;
      let failedTrials = 0;
      let checks = 0;
      let firstAtMs = 0;
      let triedAtMs: number | undefined;
      /** Tickets whose outcome counts. */
      let live = new Set<Ticket>();
      const isClosed = () => untilMs === undefined && !isHalfOpen;
      const nextCheck = () => nowMs + Math.min(10 * 2 ** checks, 60);
      const open = (strike: Strike) => {
        failures++;
        openedAtMs = nowMs;
        untilMs = nowMs + Math.min(100 * 2 ** failedTrials, 1_000);
        checkAtMs = strike === 'loss' ? nextCheck() : undefined;
        isHalfOpen = false;
        live = new Set();
      };
      const close = () => {
        if (!isClosed()) live = new Set();
        failures = failedTrials = checks = 0;
        untilMs = checkAtMs = lostAtMs = undefined;
        isHalfOpen = false;
      };
      const halfOpen = () => {
        isHalfOpen = true;
        untilMs = checkAtMs = triedAtMs = undefined;
        live = new Set();
      };
      const mayTry = () => {
        let room = 1;
        for (let more = 2, atMs = firstAtMs + 50; nowMs >= atMs && room < 1_000; more *= 2, atMs += 50) room += more;
        return live.size === 0 || live.size < room;
      };
      const tickets: Ticket[] = [];
      for (const { do: what, which, byMs, strike } of actions) {
        steps++;
        const ticket = tickets[tickets.length - 1 - which];
        if (what === 'advance') nowMs += byMs;
        else if (what === 'reset') {
          breaker.reset();
          close();
        } else if (what === 'check') {
          const isAnswered = byMs % 2 === 0;
          breaker.checked(isAnswered, nowMs);
          if (checkAtMs !== undefined) {
            checks++;
            if (isAnswered) halfOpen();
            else checkAtMs = nextCheck();
          }
        } else if (what === 'admit') {
          const admission = breaker.admit(nowMs);
          if (untilMs !== undefined && nowMs >= untilMs) halfOpen();
          agree(admission.admitted, isClosed() || (isHalfOpen && mayTry()));
          if (!admission.admitted) continue;
          tickets.push(admission.ticket);
          agree(admission.ticket.isTrial, isHalfOpen);
          agree(admission.ticket.isFirst, isHalfOpen && live.size === 0);
          if (live.size === 0 && (triedAtMs === undefined || nowMs > triedAtMs + 100)) firstAtMs = nowMs;
          triedAtMs = nowMs;
          live.add(admission.ticket);
        } else if (ticket) {
          const isLive = live.has(ticket);
          if (what === 'succeed') {
            const sentAtMs = nowMs - byMs;
            const isLate = !isHalfOpen && checkAtMs !== undefined && sentAtMs > openedAtMs;
            breaker.succeeded(ticket, sentAtMs);
            if (isLive && isHalfOpen) close();
            else if (isLive) failures = 0;
            else if (isLate) halfOpen();
          } else if (what === 'fail') {
            breaker.failed(ticket, nowMs, strike);
            if (isLive && isHalfOpen) {
              failedTrials++;
              open(strike);
            } else if (isLive && !(strike === 'loss' && lostAtMs !== undefined && nowMs <= lostAtMs + 25)) {
              if (strike === 'loss') lostAtMs = nowMs;
              if (failures === 2) open(strike);
              else failures++;
            }
          } else {
            breaker.released(ticket);
            if (isHalfOpen) live.delete(ticket);
          }
        }
        const isDue = untilMs !== undefined && nowMs >= untilMs;
        agree(breaker.circuit(nowMs), isClosed() ? 'closed' : isHalfOpen || isDue ? 'half_open' : 'open');
        agree(breaker.failures, failures);
        agree(breaker.checkAtMs, checkAtMs);
      }
    }),
    { numRuns: 10_000 },
  );
  expect(steps).toBe(1_000_000);
  expect(defaultBreakerPlan).toEqual({
    threshold: 5,
    resetMs: 30_000,
    resetMsMax: 300_000,
    lossMs: 250,
    trialMs: 5_000,
    checkMs: 500,
    checkMsMax: 15_000,
  });
}, 180_000);

describe('W24 a breaker that opened later than time 0, and old tickets', () => {
  const openedAt = (nowMs: number) => {
    const breaker = new Breaker(plan);
    for (let i = 0; i < plan.threshold; i++) breaker.failed(ticketOf(breaker.admit(nowMs)), nowMs, 'timeout');
    return breaker;
  };

  test('a refusal gives the remaining open time', () => {
    expect(openedAt(1_000).admit(1_030)).toMatchObject({ admitted: false, retryAfterMs: 70, isTried: false });
  });

  test('a refusal during a trial says that the server is being tried', () => {
    const breaker = openedAt(1_000);
    breaker.admit(1_100);
    expect(breaker.admit(1_110)).toMatchObject({ admitted: false, retryAfterMs: 40, isTried: true });
  });

  test('the host makes no checks of a half-open breaker, or after failures that are not losses', () => {
    const breaker = openedAt(1_000);
    expect(breaker.checkAtMs).toBeUndefined();
    breaker.checked(true, 1_010);
    expect(breaker.circuit(1_010)).toBe('open');
    breaker.admit(1_100);
    expect(breaker.checkAtMs).toBeUndefined();
    breaker.checked(true, 1_100);
    expect([breaker.circuit(1_100), breaker.isClosed]).toEqual(['half_open', false]);
  });

  test('a failed check counts only for the trial that it was made for', () => {
    const breaker = openedAt(1_000);
    const old = ticketOf(breaker.admit(1_100));
    breaker.failed(old, 1_100, 'timeout');
    expect(breaker.failures).toBe(4);
    breaker.checkFailed(old, 1_110, 'timeout');
    expect(breaker.failures).toBe(4);
    // Half-open again: the ticket of the last period still says nothing.
    breaker.admit(1_300);
    breaker.checkFailed(old, 1_300, 'timeout');
    expect([breaker.failures, breaker.circuit(1_300)]).toEqual([4, 'half_open']);
  });

  test('a trial whose place was freed cannot close the breaker', () => {
    const breaker = openedAt(1_000);
    const left = ticketOf(breaker.admit(1_100));
    breaker.released(left);
    breaker.succeeded(left);
    expect(breaker.isClosed).toBe(false);
  });

  test('a failed check of a closed breaker changes nothing', () => {
    const breaker = new Breaker(plan);
    breaker.checkFailed(ticketOf(breaker.admit(0)), 0, 'timeout');
    expect([breaker.isClosed, breaker.failures]).toEqual([true, 0]);
  });
});
