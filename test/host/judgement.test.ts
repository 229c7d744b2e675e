/**
 * Faults are judged separately: a server by its behaviour within its own time limits, a tool by the list when a call is sent, and
 * nothing that a caller does affects other callers.
 */
import { expect, test } from 'vitest';
import type { HostCallOptions } from '../../src/host/host-interface.js';
import { eventually } from '../eventually.js';
import { failureOf, outcomeOf } from './harness.js';
import { MoodyHost } from './moody-host.js';

const mallory = { id: 'mallory', role: undefined, scopes: [] };

test('a caller with very short deadlines cannot open the breaker for others', async () => {
  const moody = await MoodyHost.open({ breaker: { threshold: 3, reset: '60s' }, timeouts: { call: '1m' } });
  await moody.host.start('a');
  moody.mood = 'mute';
  for (let i = 0; i < 10; i++) {
    const call = failureOf(moody.call('write', { i }, { deadlineMs: 5, principal: mallory }));
    await moody.clock.advanceAsync(20);
    await call;
  }
  expect(moody.row).toMatchObject({ circuit: 'closed', consecutiveFailures: 0 });
  moody.mood = 'well';
  expect(await outcomeOf(moody.call())).toBe('ok');
});

test('a caller with very short deadlines cannot keep the breaker open by its trials', async () => {
  const moody = await MoodyHost.open({ breaker: { threshold: 3, reset: '60s' } });
  await moody.timeOut(3);
  await moody.clock.advanceAsync(61_000);
  for (let i = 0; i < 5; i++) {
    const call = failureOf(moody.call('write', { i }, { deadlineMs: 5, principal: mallory }));
    await moody.clock.advanceAsync(20);
    await call;
  }
  expect(moody.row).toMatchObject({ circuit: 'half_open', consecutiveFailures: 3 });
  moody.mood = 'well';
  expect(await outcomeOf(moody.call())).toBe('ok');
  expect(moody.row.circuit).toBe('closed');
});

test('one crash under many calls is one restart, and no reason to refuse the next call', async () => {
  const moody = await MoodyHost.open({ breaker: { threshold: 5, reset: '60s' }, timeouts: { call: '10s' } });
  await moody.host.start('a');
  moody.mood = 'mute';
  const calls = Array.from({ length: 8 }, (_, i) => outcomeOf(moody.call('write', { i })));
  await eventually('all calls are at the server', () => moody.calls === 8);
  process.kill(Number(moody.log('start')[0]), 'SIGKILL');
  expect(new Set(await Promise.all(calls))).toEqual(new Set(['outcome_uncertain']));
  moody.mood = 'well';
  const next = outcomeOf(moody.call());
  await moody.clock.advanceAsync(200);
  expect(await next).toBe('ok');
  expect(moody.row).toMatchObject({ run: 2, restartCount: 1, circuit: 'closed' });
});

test('a stopped server is reported as stopped, whatever the state of its breaker', async () => {
  const moody = await MoodyHost.open({ breaker: { threshold: 3, reset: '60s' } });
  await moody.timeOut(3);
  expect(await outcomeOf(moody.call())).toBe('circuit_open');
  await moody.host.stop('a');
  expect([await outcomeOf(moody.call()), moody.row.circuit]).toEqual(['server_stopped', 'closed']);
});

test.each([
  ['arguments that are a list', () => [], {}, 'invalid_arguments'],
  ['arguments that JSON cannot express', () => ({ n: BigInt(1) }), {}, 'invalid_arguments'],
  ['text that is two values', () => '{} {}', {}, 'invalid_arguments'],
  ['a deadline that is no number', () => ({}), { deadlineMs: Number.NaN }, 'invalid_request'],
  ['a signal that is no AbortSignal', () => ({}), { signal: {} as AbortSignal }, 'invalid_request'],
] as [string, () => unknown, HostCallOptions, string][])(
  '%s end the call before anything is charged or started',
  async (_what, args, options, code) => {
    const moody = await MoodyHost.open();
    await moody.host.withBudget({ calls: 1 }, async () => {
      const error = await failureOf(moody.host.call('a', 'write', args() as Record<string, unknown>, options));
      expect([error.code, error.details.execution, moody.starts]).toEqual([code, 'not_executed', 0]);
      expect(await outcomeOf(moody.call())).toBe('ok');
    });
  },
);
