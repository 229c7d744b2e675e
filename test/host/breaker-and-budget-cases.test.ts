/**
 * Cases from the documentation of other hosts, with their numbers, with a complete host and a real server: a breaker of
 * 3 failures and 60 seconds, a budget that ejects, roles that are open unless listed.
 */
import { describe, expect, test } from 'vitest';
import { eventually } from '../eventually.js';
import { failureOf, outcomeOf } from './harness.js';
import { MoodyHost } from './moody-host.js';

const breaker = { threshold: 3, reset: '60s' };

describe('three failures, sixty seconds', () => {
  test('AC-C1 while it is open the server is not called; 61 s later it is called once, and the failures are reset', async () => {
    const moody = await MoodyHost.open({ breaker });
    await moody.timeOut(3);
    expect(moody.row).toMatchObject({ circuit: 'open', consecutiveFailures: 3 });
    const refused = await failureOf(moody.call());
    expect(refused.message).toContain('unreachable');
    expect(refused.message).toContain('3 times');
    expect(refused.hint).toContain('do not call it again before 60 s');
    expect(moody.calls).toBe(3);
    moody.mood = 'well';
    await moody.clock.advanceAsync(61_000);
    expect(await outcomeOf(moody.call())).toBe('ok');
    expect(moody.calls).toBe(4);
    expect(moody.row).toMatchObject({ circuit: 'closed', consecutiveFailures: 0, run: 1 });
  });

  test('two failures leave it closed', async () => {
    const moody = await MoodyHost.open({ breaker });
    await moody.timeOut(2);
    expect(moody.row).toMatchObject({ circuit: 'closed', consecutiveFailures: 2 });
  });

  test('AC-C2 a trial that fails is the only call, and the next one is refused at once', async () => {
    const moody = await MoodyHost.open({ breaker });
    await moody.timeOut(3);
    await moody.clock.advanceAsync(61_000);
    const trial = failureOf(moody.call());
    await eventually('the trial is at the server', () => moody.calls === 4);
    await moody.clock.advanceAsync(5_010);
    expect((await trial).code).toBe('outcome_uncertain');
    const refused = await failureOf(moody.call());
    expect([refused.code, refused.message.includes('unreachable'), moody.calls]).toEqual(['circuit_open', true, 4]);
  });

  /** The breaker is open, the process has ended, and the next process opens no session. */
  async function missing() {
    const moody = await MoodyHost.open({ breaker, timeouts: { start: '10m' } });
    await moody.timeOut(3);
    moody.mood = 'silent';
    process.kill(Number(moody.log('start')[0]), 'SIGKILL');
    await eventually('it is missed', () => moody.row.state === 'backing_off');
    await moody.clock.advanceAsync(60_000);
    await eventually('it is started again', () => moody.starts === 2);
    return moody;
  }

  test('AC-C3 without a session calls fail with `reconnecting`, and any number of calls cause one reconnect', async () => {
    const moody = await missing();
    // The breaker was open when the process died; from then on the supervisor decides whether calls can be sent.
    expect(moody.row).toMatchObject({ state: 'connecting', circuit: 'closed' });
    for (let i = 0; i < 3; i++) {
      const call = failureOf(moody.call());
      await moody.clock.advanceAsync(5_010);
      const error = await call;
      expect(error.toJSON()).toMatchObject({ code: 'reconnecting', execution: 'not_executed', retryable: true });
      expect(error.message).toContain('reconnect');
    }
    expect([moody.starts, moody.calls]).toEqual([2, 3]);
    // Waiting for the server is no strike.
    expect(moody.row.consecutiveFailures).toBe(0);
  });

  test('AC-C4 as soon as its session is open again the next call is answered', async () => {
    const moody = await missing();
    const call = failureOf(moody.call());
    await moody.clock.advanceAsync(5_010);
    expect((await call).code).toBe('reconnecting');
    const nowMs = moody.clock.nowMs();
    moody.mood = 'well';
    await moody.state('ready');
    expect(moody.row).toMatchObject({ circuit: 'closed', consecutiveFailures: 0 });
    expect(await outcomeOf(moody.call())).toBe('ok');
    expect([moody.clock.nowMs() - nowMs, moody.starts]).toEqual([0, 2]);
  });

  test('AC-C4 the next call is answered also when the breaker has just opened', async () => {
    const moody = await MoodyHost.open({ breaker, timeouts: { start: '10m' } });
    await moody.timeOut(3);
    moody.mood = 'silent';
    process.kill(Number(moody.log('start')[0]), 'SIGKILL');
    await eventually('it is missed', () => moody.row.state === 'backing_off');
    await moody.clock.advanceAsync(100);
    await eventually('it is started again', () => moody.starts === 2);
    const waiting = outcomeOf(moody.call());
    moody.mood = 'well';
    expect(await waiting).toBe('ok');
    expect(moody.row).toMatchObject({ state: 'ready', circuit: 'closed' });
  });
});

describe('a budget of two restarts', () => {
  /** The server was ready once; then its process dies, and no later process becomes ready. */
  async function exhausted(restart: Record<string, unknown>) {
    const moody = await MoodyHost.open({ restart: { max: 2, window: '1m', ...restart } });
    expect(await outcomeOf(moody.call())).toBe('ok');
    moody.mood = 'stillborn';
    process.kill(Number(moody.log('start')[0]), 'SIGKILL');
    await eventually('it is missed', () => moody.row.state === 'backing_off');
    return moody;
  }

  test('AC-C6 after its budget the server is parked and reported, a reload restarts it, and closing the host ends it', async () => {
    const moody = await exhausted({});
    await moody.advanceUntil('parked', 100);
    expect(moody.events.filter(({ kind }) => kind === 'parked')).toHaveLength(1);
    expect(moody.row).toMatchObject({ run: 3, active: false, ejected: false });
    moody.mood = 'well';
    await moody.host.reload('a');
    expect(await outcomeOf(moody.call())).toBe('ok');
    const pid = Number(moody.log('start').at(-1));
    expect(moody.row).toMatchObject({ run: 4, active: true });
    await moody.host.close();
    expect(() => process.kill(pid, 0)).toThrow('ESRCH');
    expect(moody.clock.pendingTimers).toBe(0);
  });

  test('AC-H2 with "eject" the third failure ejects the server: for an hour nothing starts it, but a reload does', async () => {
    const moody = await exhausted({ onExhausted: 'eject' });
    await moody.advanceUntil('ejected', 100);
    expect(moody.row).toMatchObject({ run: 3, ejected: true, restartCount: 3 });
    const { starts } = moody;
    moody.mood = 'well';
    for (let minute = 0; minute < 60; minute++) {
      await moody.clock.advanceAsync(60_000);
      const error = await failureOf(moody.call());
      expect([error.code, error.retryable, error.hint?.includes('reload')]).toEqual(['server_ejected', false, true]);
    }
    expect(moody.starts).toBe(starts);
    await moody.host.reload('a');
    expect(await outcomeOf(moody.call())).toBe('ok');
    expect(moody.row).toMatchObject({ ejected: false, restartCount: 0 });
  });
});

test('AC-H17 the second of two equal calls is a hit, also when the first call started the server', async () => {
  const moody = await MoodyHost.open({ env: { HINT: '"ttlMs":60000' } });
  expect([await outcomeOf(moody.call('read')), await outcomeOf(moody.call('read'))]).toEqual(['ok', 'ok']);
  expect([moody.host.cacheStats(), moody.calls]).toMatchObject([{ hits: 1, misses: 1 }, 1]);
});

describe('AC-H19 a call that is refused at one stage does not reach the later stages', () => {
  const open = () => MoodyHost.open({ breaker, env: { HINT: '"ttlMs":3600000' } });
  const stats = ({ host }: MoodyHost) => {
    const { hits, misses } = host.cacheStats();
    return { hits, misses };
  };

  test('a call over budget does not read or change the cache', async () => {
    const moody = await open();
    await moody.host.withBudget({ calls: 1 }, async () => {
      expect(await outcomeOf(moody.call('read'))).toBe('ok');
      expect(await outcomeOf(moody.call('read'))).toBe('budget_exceeded');
    });
    expect([stats(moody), moody.calls]).toEqual([{ hits: 0, misses: 1 }, 1]);
  });

  test('a cached answer is returned while the breaker is open; an uncached call is charged, counted as a miss, and refused', async () => {
    const moody = await open();
    await moody.call('read', { nonce: 'kept' });
    await moody.timeOut(3);
    const before = stats(moody);
    await moody.host.withBudget({ calls: 2 }, async () => {
      expect(await outcomeOf(moody.call('read', { nonce: 'kept' }))).toBe('ok');
      expect(await outcomeOf(moody.call('read', { nonce: 'other' }))).toBe('circuit_open');
      expect(stats(moody)).toEqual({ hits: before.hits + 1, misses: before.misses + 1 });
      expect(await outcomeOf(moody.call('read', { nonce: 'kept' }))).toBe('budget_exceeded');
    });
    expect(moody.log('call').filter((nonce) => nonce !== '')).toEqual(['kept']);
  });

  test('a cached answer is returned also while the server is ejected', async () => {
    const moody = await MoodyHost.open({ restart: { max: 0, onExhausted: 'eject' }, env: { HINT: '"ttlMs":3600000' } });
    await moody.call('read', { nonce: 'kept' });
    process.kill(Number(moody.log('start')[0]), 'SIGKILL');
    await moody.state('ejected');
    expect(await outcomeOf(moody.call('read', { nonce: 'kept' }))).toBe('ok');
    expect(await outcomeOf(moody.call('read', { nonce: 'other' }))).toBe('server_ejected');
  });
});

describe('roles that are open unless they are listed', () => {
  const roles = { researcher: { allow: ['a/read'] }, sandbox: { allow: [] } };
  const as = (role?: string) => ({ principal: { id: role ?? 'nobody', role, scopes: [] } });

  async function openWith(unlistedRole: 'allow' | 'deny') {
    const moody = MoodyHost.make();
    await moody.start({ mcpServers: { a: moody.entry() }, roles, unlistedRole });
    return moody;
  }
  const names = async (moody: MoodyHost, role?: string) =>
    (await moody.host.tools('a', as(role))).map(({ name }) => name);

  test('AC-P1 a listed role sees its tools; any other role, or none, sees everything', async () => {
    const moody = await openWith('allow');
    expect(await names(moody, 'researcher')).toEqual(['read']);
    expect(await names(moody, 'operator')).toEqual(['read', 'write']);
    expect(await names(moody)).toEqual(['read', 'write']);
  });

  test('AC-P2 a listed role may call exactly its tools', async () => {
    const moody = await openWith('allow');
    const refused = await failureOf(moody.call('write', {}, as('researcher')));
    expect([refused.code, refused.message.includes('a/write'), moody.calls]).toEqual(['denied', true, 0]);
    expect(await outcomeOf(moody.call('read', {}, as('researcher')))).toBe('ok');
    expect(await outcomeOf(moody.call('write', {}, as()))).toBe('ok');
  });

  test('AC-P3 a role with an empty list may use nothing', async () => {
    const moody = await openWith('allow');
    expect((await failureOf(moody.host.tools('a', as('sandbox')))).code).toBe('denied');
    expect(await moody.host.discover({ ...as('sandbox'), wake: true })).toEqual([]);
    expect(await outcomeOf(moody.call('read', {}, as('sandbox')))).toBe('denied');
  });

  test('with "deny" unlisted roles may use nothing either', async () => {
    const moody = await openWith('deny');
    expect(await outcomeOf(moody.call('read', {}, as('operator')))).toBe('denied');
    expect(await outcomeOf(moody.call('read', {}, as()))).toBe('denied');
    expect(await outcomeOf(moody.call('read', {}, as('researcher')))).toBe('ok');
  });
});
