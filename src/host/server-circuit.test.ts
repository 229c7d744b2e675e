import { describe, expect, test } from 'vitest';
import { managedSession } from '../../test/fakes/managed-session.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { type CircuitChanged, defaultBreakerPlan, type Strike } from '../policy/breaker.js';
import type { ProbeResult } from '../session/liveness.js';
import type { Session } from '../session/session.js';
import type { Acquired } from '../supervisor/supervisor.js';
import { ServerCircuit } from './server-circuit.js';

/** A circuit with one session that answers as the test says. */
function setUp(plan: Partial<typeof defaultBreakerPlan> = {}) {
  const clock = new FakeClock();
  const changes: string[] = [];
  const onChange: CircuitChanged = (_from, to) => changes.push(`${clock.nowMs()} ${to}`);
  /** When checks were sent. */
  const asked: number[] = [];
  let answer: ProbeResult | 'never' | 'at the deadline' = 'alive';
  const session = {
    lastMessageAtMs: 0,
    probe: (deadlineAtMs: number, asker: string) => {
      expect([deadlineAtMs - clock.nowMs(), asker]).toEqual([5_000, 'breaker']);
      asked.push(clock.nowMs());
      if (answer === 'never') return new Promise<ProbeResult>(() => {});
      if (answer !== 'at the deadline') return Promise.resolve(answer);
      return new Promise<ProbeResult>((resolve) => void clock.at(deadlineAtMs, () => resolve('silent')));
    },
  };
  const current: Acquired<Session> = { connection: session as unknown as Session, run: 7, sinceMs: 0 };
  const supervisor: { current: Acquired<Session> | undefined } = { current };
  const circuit = new ServerCircuit({ ...defaultBreakerPlan, ...plan }, supervisor, clock, onChange);
  const { breaker } = circuit;
  const ticket = () => {
    const admission = breaker.admit(clock.nowMs());
    if (!admission.admitted) throw new Error('refused');
    return admission.ticket;
  };
  const fail = (strike: Strike) => breaker.failed(ticket(), clock.nowMs(), strike);
  const answers = (next: typeof answer) => {
    answer = next;
  };
  const now = () => breaker.circuit(clock.nowMs());
  return { clock, changes, asked, session, supervisor, circuit, breaker, ticket, fail, answers, now };
}

describe('W6 while a breaker is open because connections failed', () => {
  test('the server is checked after 500 ms, doubling to 15 s, and the first answer makes it half-open at once', async () => {
    const { clock, asked, fail, answers, now, changes } = setUp({ threshold: 1 });
    answers('silent');
    fail('loss');
    await clock.advanceAsync(60_000);
    expect(asked).toEqual([500, 1_500, 3_500, 7_500, 15_500, 30_500, 45_500]);
    answers('alive');
    await clock.advanceAsync(500);
    expect([now(), changes, clock.pendingTimers]).toEqual(['half_open', ['0 open', '60500 half_open'], 0]);
  });

  test('one check at a time, of at most 5 s each, also when the session never settles it', async () => {
    const { clock, asked, fail, answers } = setUp({ threshold: 1 });
    answers('never');
    fail('loss');
    await clock.advanceAsync(20_000);
    expect(asked).toEqual([500, 6_500, 13_500]);
  });

  test('a check that could not be sent, or a server without a session, is no answer', async () => {
    const { clock, fail, answers, now, supervisor } = setUp({ threshold: 1 });
    answers('unasked');
    fail('loss');
    await clock.advanceAsync(1_000);
    supervisor.current = undefined;
    await clock.advanceAsync(10_000);
    expect(now()).toBe('open');
  });

  test.each(['timeout', 'protocol'] as const)(
    'no check is sent if it opened after a strike of the kind %s instead',
    async (strike) => {
      const { clock, asked, fail, now } = setUp({ threshold: 1 });
      fail(strike);
      expect(clock.pendingTimers).toBe(0);
      await clock.advanceAsync(29_999);
      expect([asked, now()]).toEqual([[], 'open']);
    },
  );

  test.each([
    ['it is closed by a new run', ({ breaker }: ReturnType<typeof setUp>) => breaker.reset()],
    ['it is closed permanently', ({ circuit }: ReturnType<typeof setUp>) => circuit.close()],
  ])('no timer is left once %s, before a check or during one', async (_what, end) => {
    for (const atMs of [100, 600]) {
      const rig = setUp({ threshold: 1 });
      rig.answers('at the deadline');
      rig.fail('loss');
      await rig.clock.advanceAsync(atMs);
      end(rig);
      await rig.clock.advanceAsync(5_000);
      expect([rig.clock.pendingTimers, rig.now(), rig.asked.length]).toEqual([0, 'closed', atMs === 100 ? 0 : 1]);
    }
  });

  test('a late failure after the permanent end of the circuit sets no timer', () => {
    const { clock, circuit, fail } = setUp({ threshold: 1 });
    circuit.close();
    fail('loss');
    expect([clock.pendingTimers, circuit.check()]).toEqual([0, undefined]);
  });

  test('a check that began before the breaker opened again counts once, for the new period', async () => {
    const { clock, breaker, asked, fail, answers } = setUp({ threshold: 1 });
    answers('at the deadline');
    fail('loss');
    await clock.advanceAsync(1_000);
    breaker.reset();
    fail('loss');
    // The check at 0.5 s of the new period joins the one under way, which ends at 5.5 s.
    await clock.advanceAsync(6_000);
    expect(asked).toEqual([500, 6_500]);
  });

  test('no timer is left once its server is disposed of', async () => {
    const clock = new FakeClock();
    const managed = managedSession('a', { close: () => Promise.resolve() }, clock, { breaker: { threshold: 1 } });
    await managed.supervisor.acquire(1_000);
    const timers = clock.pendingTimers;
    const admission = managed.breaker.admit(0);
    if (admission.admitted) managed.breaker.failed(admission.ticket, 0, 'loss');
    expect(clock.pendingTimers).toBe(timers + 1);
    await managed.dispose();
    expect([clock.pendingTimers, managed.breaker.isClosed]).toEqual([0, true]);
  });

  test('a closed breaker has no timer, whatever its failures', () => {
    const { clock, fail } = setUp();
    fail('loss');
    expect(clock.pendingTimers).toBe(0);
  });
});

describe('W9 the check before a trial', () => {
  test('reports the failure of the server: a loss at once, a timeout at the deadline', async () => {
    const { clock, circuit, answers } = setUp();
    answers('silent');
    expect(await circuit.check()).toBe('loss');
    answers('at the deadline');
    const late = circuit.check();
    await clock.advanceAsync(5_000);
    expect([await late, clock.pendingTimers]).toEqual(['timeout', 0]);
  });

  test('is passed by any message of the server meanwhile', async () => {
    const { clock, circuit, answers, session } = setUp();
    for (const answer of ['at the deadline', 'never'] as const) {
      answers(answer);
      const checking = circuit.check();
      clock.advance(1);
      session.lastMessageAtMs = clock.nowMs();
      await clock.advanceAsync(4_999);
      expect(await checking).toBe('alive');
    }
  });

  test('is shared by all requests for a check of the same session, and not with the next session', async () => {
    const { clock, circuit, answers, asked, session, supervisor } = setUp();
    answers('at the deadline');
    const checks = [circuit.check(), circuit.check()];
    expect([asked.length, checks[0] === checks[1]]).toEqual([1, true]);
    supervisor.current = { connection: { ...session } as unknown as Session, run: 2, sinceMs: 0 };
    const other = circuit.check();
    expect([asked.length, other === checks[0]]).toEqual([2, false]);
    await clock.advanceAsync(5_000);
    await Promise.all([...checks, other]);
    expect(clock.pendingTimers).toBe(0);
  });
});

describe('W10 a call that ended in silence', () => {
  test('leads to one check, and is one strike when that stays unanswered', async () => {
    const { clock, circuit, breaker, answers, asked, ticket } = setUp();
    answers('at the deadline');
    for (let i = 0; i < 12; i++) circuit.suspect(ticket());
    await clock.advanceAsync(4_999);
    expect([asked, breaker.failures]).toEqual([[0], 0]);
    await clock.advanceAsync(1);
    expect(breaker.failures).toBe(1);
  });

  test.each(['alive', 'unasked'] as const)('is no strike if the result of the check is "%s"', async (found) => {
    const { clock, circuit, breaker, answers, ticket } = setUp();
    answers(found);
    circuit.suspect(ticket());
    await clock.advanceAsync(0);
    expect(breaker.failures).toBe(0);
  });

  test('repeatedly opens the breaker; as a trial it opens the breaker again or frees its place', async () => {
    const { clock, circuit, breaker, answers, ticket, now } = setUp();
    answers('at the deadline');
    for (let i = 0; i < 5; i++) {
      circuit.suspect(ticket());
      await clock.advanceAsync(5_000);
    }
    expect([now(), breaker.checkAtMs]).toEqual(['open', undefined]);
    await clock.advanceAsync(30_000);
    answers('alive');
    circuit.suspect(ticket());
    await clock.advanceAsync(0);
    expect(now()).toBe('half_open');
    answers('at the deadline');
    circuit.suspect(ticket());
    await clock.advanceAsync(5_000);
    expect([now(), breaker.failures]).toEqual(['open', 6]);
  });

  test('without a session leads to no check', () => {
    const { circuit, supervisor, ticket, asked } = setUp();
    supervisor.current = undefined;
    circuit.suspect(ticket());
    expect([circuit.isLost, asked]).toEqual([true, []]);
  });
});
