/**
 * Mistakes of other hosts, tested on a complete host with real servers: each is named by its id, and the evidence is what
 * the server itself wrote down.
 */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { HostError } from '../../src/kernel/errors.js';
import { eventually } from '../eventually.js';
import { json, result, rpcError, startServer } from '../fakes/http-server.js';
import { failureOf, outcomeOf } from './harness.js';
import { MoodyHost } from './moody-host.js';

describe('D-01 one trial', () => {
  const breaker = { threshold: 3, reset: '60s' };
  const fifty = (moody: MoodyHost) =>
    Array.from({ length: 50 }, (_, i) => outcomeOf(moody.call('write', { nonce: `${i}` })));

  test('D-39 one of fifty calls at the end of the open time reaches the server; after its answer fifty more do', async () => {
    const moody = await MoodyHost.open({ breaker });
    await moody.timeOut(3);
    moody.mood = 'held';
    await moody.clock.advanceAsync(60_000);
    const calls = fifty(moody);
    const refused = await Promise.all(calls.slice(1));
    expect(refused).toEqual(Array.from({ length: 49 }, () => 'circuit_open'));
    await eventually('the trial is at the server', () => moody.calls === 4);
    expect(moody.log('call').slice(3)).toEqual(['0']);
    moody.mood = 'well';
    expect(await calls[0]).toBe('ok');
    expect(moody.log('call').slice(3)).toEqual(['0']);
    expect(await Promise.all(fifty(moody))).toEqual(Array.from({ length: 50 }, () => 'ok'));
    expect(moody.calls).toBe(4 + 50);
  });

  test('a trial that its caller cancels frees its place at once, and is no failure', async () => {
    const moody = await MoodyHost.open({ breaker });
    await moody.timeOut(3);
    await moody.clock.advanceAsync(60_000);
    const abort = new AbortController();
    const trial = outcomeOf(moody.call('write', { nonce: 'given up' }, { signal: abort.signal }));
    await eventually('the trial is at the server', () => moody.log('call').includes('given up'));
    expect(await outcomeOf(moody.call())).toBe('circuit_open');
    abort.abort();
    expect(await trial).toBe('cancelled');
    expect(moody.row).toMatchObject({ circuit: 'half_open', consecutiveFailures: 3 });
    moody.mood = 'well';
    expect(await outcomeOf(moody.call('write', { nonce: 'next' }))).toBe('ok');
    expect(moody.log('call').slice(3)).toEqual(['given up', 'next']);
  });
});

describe('D-06 an error of a tool is no error of the connection', () => {
  const needles = [
    'server closed connection',
    'client is disconnected',
    'read error',
    'write error: broken pipe',
    'did not respond to tools/call within 60s',
    'flush error',
    'could not connect to database',
  ];

  // Read-only and trusted: a failure that looked like a lost connection would be sent again.
  test.each(needles)('%s: no restart, no strike, nothing sent twice', async (say) => {
    const moody = await MoodyHost.open({ trustAnnotations: true, breaker: { threshold: 1, reset: '60s' } });
    await moody.host.tools('a');
    expect((await moody.call('read', { say, fails: true, nonce: 'told' })).isError).toBe(true);
    const refusal = await failureOf(moody.call('read', { say, refuses: true, nonce: 'refused' }));
    expect([refusal.code, refusal.message.includes(say)]).toEqual(['tool_error', true]);
    expect(moody.log('call')).toEqual(['told', 'refused']);
    expect(moody.row).toMatchObject({ restartCount: 0, run: 1, circuit: 'closed', consecutiveFailures: 0 });
    expect(moody.starts).toBe(1);
  });

  test('a reset connection during an HTTP call is an error of the connection, whatever its text', async () => {
    const tools = [{ name: 'read', inputSchema: { type: 'object' }, annotations: { readOnlyHint: true } }];
    const facts = {
      protocolVersion: '2025-11-25',
      capabilities: { tools: {} },
      serverInfo: { name: 'h', version: '1' },
    };
    const server = await startServer(({ id, rpcMethod }, response, request) => {
      if (rpcMethod === 'initialize') json(response, result(id, facts));
      else if (rpcMethod === 'tools/list') json(response, result(id, { tools }));
      else if (rpcMethod === 'tools/call') request.socket.resetAndDestroy();
      else if (id === undefined) response.writeHead(rpcMethod === undefined ? 405 : 202).end();
      else json(response, rpcError(id, -32601));
    });
    onTestFinished(() => server.close());
    const moody = MoodyHost.make();
    const sent = () => server.received.filter(({ rpcMethod }) => rpcMethod === 'tools/call').length;
    await moody.start({ mcpServers: { a: { url: server.url, trustAnnotations: true } } });
    await moody.host.tools('a');
    const losing = failureOf(moody.call('read'));
    // A call that is known to be harmless is sent again after a short wait; a call that may have changed something is not.
    await eventually('it was sent three times', async () => {
      await moody.clock.advanceAsync(100);
      return sent() === 3;
    });
    const lost = await losing;
    expect([lost.code, lost.details.execution]).toEqual(['transport', 'uncertain']);
    const before = sent();
    // At another time, because two simultaneous losses would be one strike.
    await moody.clock.advanceAsync(300);
    const uncertain = await failureOf(moody.call('write'));
    expect([uncertain.code, (uncertain.cause as HostError).code]).toEqual(['outcome_uncertain', 'transport']);
    expect(sent()).toBe(before + 1);
    expect(moody.row.consecutiveFailures).toBe(2);
  });
});

test('D-11 a crash releases no lease: the next call works, and both leases are still held', async () => {
  const moody = await MoodyHost.open();
  const leases = [await moody.host.lease('a'), await moody.host.lease('a')];
  process.kill(Number(moody.log('start')[0]), 'SIGKILL');
  await moody.state('backing_off');
  await moody.clock.advanceAsync(100);
  expect(await outcomeOf(moody.call())).toBe('ok');
  expect(moody.row).toMatchObject({ run: 2, refCount: 2 });
  for (const lease of leases) lease.release();
  expect(moody.row.refCount).toBe(0);
});

describe('D-15 a server of the configuration is supervised like one that was spawned', () => {
  const treatment = { breaker: { threshold: 2, reset: '30s' }, restart: { max: 1, window: '1m' } };

  test.each(['configured', 'spawned'])('%s: breaker, restart budget, parking, revival', async (how) => {
    const moody = MoodyHost.make();
    if (how === 'configured') await moody.start({ mcpServers: { a: moody.entry(treatment) } });
    else await (await moody.start({})).spawn({ name: 'a', ...moody.entry(treatment) });
    expect(await outcomeOf(moody.call())).toBe('ok');

    await moody.timeOut(2);
    expect([moody.row.circuit, await outcomeOf(moody.call())]).toEqual(['open', 'circuit_open']);

    moody.mood = 'dying';
    await moody.clock.advanceAsync(30_000);
    expect(await outcomeOf(moody.call())).toBe('outcome_uncertain');
    await moody.state('backing_off');
    // Without a run the breaker is closed: the supervisor alone decides whether the server can be called.
    expect(moody.row).toMatchObject({ restartCount: 1, circuit: 'closed' });
    await moody.clock.advanceAsync(100);
    await moody.state('ready');
    expect(moody.row).toMatchObject({ run: 2, circuit: 'closed' });

    expect(await outcomeOf(moody.call())).toBe('outcome_uncertain');
    await moody.state('parked');
    expect(await outcomeOf(moody.call())).toBe('server_parked');
    moody.mood = 'well';
    await moody.clock.advanceAsync((moody.row.nextProbeInMs as number) + 1);
    await moody.state('ready');
    expect(await outcomeOf(moody.call())).toBe('ok');
    expect(moody.row).toMatchObject({ run: 3, ejected: false });
  });
});

describe('D-16 a server that dies at each call', () => {
  /** One call a second, until it is parked. */
  async function parked() {
    const moody = await MoodyHost.open();
    moody.mood = 'dying';
    await moody.host.start('a');
    const outcomes = new Set<string>();
    for (let i = 0; i < 100 && moody.row.state !== 'parked'; i++) {
      const call = outcomeOf(moody.call('write', {}, { deadlineMs: 500 }));
      await eventually('it has died', () => !['ready', 'connecting', 'closing'].includes(moody.row.state));
      await moody.clock.advanceAsync(1_000);
      outcomes.add(await call);
      await eventually('it has settled', () => !['connecting', 'closing'].includes(moody.row.state));
    }
    expect(moody.row.state).toBe('parked');
    return { moody, outcomes };
  }

  test('is parked when its starts are used up, not for good: its own probe restarts it, without a call', async () => {
    const { moody, outcomes } = await parked();
    expect([...outcomes].sort()).toEqual(['outcome_uncertain', 'reconnecting']);
    // Each start was one call that ran, and none of them ran twice.
    expect([moody.row.run, moody.calls]).toEqual([6, 6]);
    const probeInMs = moody.row.nextProbeInMs as number;
    expect(probeInMs).toBeGreaterThan(40_000);
    expect(probeInMs).toBeLessThanOrEqual(72_000);
    const error = await failureOf(moody.call());
    expect(error.toJSON()).toMatchObject({ code: 'server_parked', retryable: true });
    moody.mood = 'well';
    await moody.clock.advanceAsync(probeInMs + 1);
    await moody.state('ready');
    expect(moody.calls).toBe(6);
    expect(await outcomeOf(moody.call())).toBe('ok');
    expect(moody.events.filter(({ kind }) => kind === 'revived')).toHaveLength(1);
    // Once proven, the server has its whole budget again.
    await moody.clock.advanceAsync(5_000);
    expect(moody.row).toMatchObject({ restartCount: 0, ejected: false });
  });

  test('shows in its status only the restarts of the last five minutes, also while it is parked', async () => {
    const { moody } = await parked();
    moody.mood = 'stillborn';
    expect(moody.row.restartCount).toBe(6);
    for (let i = 0; i < 31; i++) {
      await moody.clock.advanceAsync(10_000);
      await eventually('it has settled', () => !['connecting', 'closing'].includes(moody.row.state));
    }
    expect(moody.row).toMatchObject({ state: 'parked', restartCount: 0 });
    expect(moody.row.nextProbeInMs).toBeGreaterThan(0);
  });
});

describe('D-32 a call', () => {
  test('that waits for its turn times out in the queue, and never reaches the server', async () => {
    const moody = await MoodyHost.open({ concurrency: 1, timeouts: { call: '10s' } });
    moody.mood = 'held';
    const first = outcomeOf(moody.call('write', { nonce: 'first' }));
    await eventually('it runs', () => moody.calls === 1);
    const second = failureOf(moody.call('write', { nonce: 'second' }, { deadlineMs: 1_000 }));
    await moody.clock.advanceAsync(1_000);
    expect((await second).toJSON()).toMatchObject({ code: 'timeout', phase: 'queued', execution: 'not_executed' });
    moody.mood = 'well';
    expect(await first).toBe('ok');
    expect(moody.log('call')).toEqual(['first']);
  });

  test('that ends by its deadline or its caller is cancelled at the server', async () => {
    const moody = await MoodyHost.open();
    await moody.timeOut(1);
    await eventually('the cancellation is at the server', () => moody.log('cancelled').length === 1);
    const abort = new AbortController();
    const call = outcomeOf(moody.call('write', { nonce: 'aborted' }, { signal: abort.signal }));
    await eventually('it is at the server', () => moody.log('call').includes('aborted'));
    abort.abort();
    expect(await call).toBe('cancelled');
    await eventually('the second cancellation is at the server', () => moody.log('cancelled').length === 2);
  });
});

test('D-32 the stderr of a server is not copied to the host’s stderr, and is shown in errors that it explains', async () => {
  const script = `
    import { createHost } from 'hostler';
    const host = await createHost({ mcpServers: {
      loud: { command: 'sh', args: ['-c', 'echo last words of a server >&2; exit 1'], restart: { max: 0 } },
    } });
    await host.call('loud', 'x').catch(() => {});
    console.log(host.status()[0].lastError.message);
    await host.close();`;
  const root = fileURLToPath(new URL('../../', import.meta.url));
  const run = promisify(execFile);
  const { stdout, stderr } = await run(process.execPath, ['--input-type=module', '-e', script], { cwd: root });
  expect([stdout.includes('last words of a server'), stderr]).toEqual([true, '']);
});

describe('D-36 two servers of one name', () => {
  const hint = { HINT: '"ttlMs":60000' };
  const breaker = { threshold: 3, reset: '60s' };
  const folder = () => {
    const made = mkdtempSync(path.join(os.tmpdir(), 'hostler-state-'));
    onTestFinished(() => rmSync(made, { recursive: true, force: true }));
    return made;
  };

  test('a replacement starts with its own breaker, answers, pauses and pins', async () => {
    const [old, next] = [MoodyHost.make(), MoodyHost.make()];
    await old.start({});
    await old.host.spawn({ name: 'a', ...old.entry({ breaker, env: hint }) });
    await old.call('read', { nonce: 'n', say: 'old' });
    await old.call('read', { nonce: 'n', say: 'old' });
    expect(old.calls).toBe(1);
    for (let i = 0; i < 5; i++) await old.call('write', { fails: true });
    expect(await outcomeOf(old.call('write'))).toBe('tool_throttled');
    const before = old.calls;
    await old.timeOut(3, 'read');
    expect(old.row.circuit).toBe('open');
    const pid = Number(old.log('start')[0]);

    const other = next.entry({ breaker, args: ['other'], env: { ...hint, DESCRIPTION: 'reads something else' } });
    await old.host.spawn({ name: 'a', ...other }, { replace: true });
    expect(() => process.kill(pid, 0)).toThrow('ESRCH');
    expect(old.row).toMatchObject({ run: 1, circuit: 'closed', consecutiveFailures: 0, restartCount: 0 });
    expect(await outcomeOf(old.call('read', { nonce: 'n', say: 'old' }))).toBe('ok');
    expect([next.log('call'), old.calls]).toEqual([['n'], before + 3]);
    expect(await outcomeOf(old.call('write'))).toBe('ok');
    expect(old.host.pin('a', 'read')?.status).toBe('approved');
  });

  test('two hosts on one state folder share neither breaker nor answers nor pins', async () => {
    const stateDir = folder();
    const [one, two] = [MoodyHost.make(stateDir), MoodyHost.make(stateDir)];
    const first = one.entry({ breaker, env: hint });
    const second = two.entry({ breaker, args: ['other'], env: { ...hint, DESCRIPTION: 'reads something else' } });
    await one.start({ mcpServers: { a: first } });
    await two.start({ mcpServers: { a: second } });
    for (const each of [one, two]) expect(await outcomeOf(each.call('read', { nonce: 'n' }))).toBe('ok');
    expect([one.calls, two.calls]).toEqual([1, 1]);
    await one.timeOut(3);
    expect([one.row.circuit, two.row.circuit]).toEqual(['open', 'closed']);
    expect(await outcomeOf(two.call('write'))).toBe('ok');

    // The next host still knows the facts of each, whichever host wrote last.
    await one.host.close();
    one.mood = 'well';
    await one.start({ mcpServers: { a: { ...first, env: { ...first.env, DESCRIPTION: 'reads, and tells me' } } } });
    await one.host.tools('a');
    expect(await outcomeOf(one.call('read'))).toBe('schema_changed');
    await two.host.close();
    await two.start({ mcpServers: { a: second } });
    await two.host.tools('a');
    expect(await outcomeOf(two.call('read'))).toBe('ok');
  });
});
