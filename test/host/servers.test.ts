/**
 * Servers that are added and removed, with real child processes: spawned, replaced, stopped and closed, at once and in the middle
 * of calls.
 */
import { chmodSync, copyFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import type { SpawnOptions } from '../../src/host/spawn.js';
import { drainMsMax } from '../../src/supervisor/run.js';
import { eventually } from '../eventually.js';
import { failureOf, outcomeOf } from './harness.js';
import { MoodyHost } from './moody-host.js';

/** Processes of the server that still run. */
const alive = (moody: MoodyHost): number[] =>
  moody
    .log('start')
    .map(Number)
    .filter((pid) => {
      try {
        return process.kill(pid, 0);
      } catch {
        return false;
      }
    });

async function empty(): Promise<MoodyHost> {
  const moody = MoodyHost.make();
  await moody.start({});
  return moody;
}

const spawn = (moody: MoodyHost, more: Record<string, unknown> = {}, options: SpawnOptions = {}) =>
  moody.host.spawn({ name: 'a', ...moody.entry(more) }, options);

const replacing = { replace: true };
const other = (number: number) => ({ args: [`number ${number}`] });

/** A call that the server has received and does not answer until it is allowed to. */
async function heldCall(moody: MoodyHost, mood: 'held' | 'mute' = 'held') {
  moody.mood = mood;
  const before = moody.calls;
  const outcome = outcomeOf(moody.call('write'));
  await eventually('the call is at the server', () => moody.calls > before);
  return outcome;
}

/** Long enough for a server whose input has ended to exit, and for another to start: forbidden events would have happened. */
const slowly = () => new Promise((resolve) => setTimeout(resolve, 300));

describe('D-14 one name', () => {
  test('many replaces at once leave one process, that of the last', async () => {
    const moody = await empty();
    await spawn(moody);
    await Promise.all([1, 2, 3].map((number) => spawn(moody, other(number), replacing)));
    expect([moody.starts, alive(moody).length, moody.host.status().length]).toEqual([4, 1, 1]);
    expect(moody.row.pid).toBe(alive(moody)[0]);
    await moody.host.close();
    expect(alive(moody)).toEqual([]);
  });

  test('many equal spawns at once start one', async () => {
    const moody = await empty();
    await Promise.all([1, 2, 3].map(() => spawn(moody)));
    expect([moody.starts, moody.host.status().length]).toEqual([1, 1]);
  });

  test('the row exists from the tick of the spawn on, and while the server is replaced', async () => {
    const moody = await empty();
    const spawned = spawn(moody);
    expect(moody.row.state).toBe('connecting');
    await spawned;
    const replaced = spawn(moody, other(1), replacing);
    expect(moody.row.state).toBe('connecting');
    await replaced;
    expect(moody.row.state).toBe('ready');
  });

  test('a failed replace restores the earlier server, with its history', async () => {
    const moody = await empty();
    await spawn(moody);
    process.kill(Number(moody.log('start')[0]), 'SIGKILL');
    await moody.state('backing_off');
    await moody.clock.advanceAsync(100);
    await moody.state('ready');
    expect(moody.row.restartCount).toBe(1);
    const bad = { name: 'a', command: 'no-such-command' };
    const error = await failureOf(moody.host.spawn(bad, replacing));
    expect(error.code).toBe('connect_failed');
    expect(error.message).toMatch(
      /^server 'a' could not be started; the earlier server of this name is registered again \(.*no-such-command/,
    );
    expect(await outcomeOf(moody.call())).toBe('ok');
    expect(moody.row).toMatchObject({ state: 'ready', restartCount: 1, refCount: 1 });
    expect([moody.starts, alive(moody).length]).toEqual([3, 1]);
    // The old definition is registered.
    await spawn(moody);
    expect(moody.starts).toBe(3);
  });

  test.each([
    ['stopped', {}],
    ['registered', { lazy: true }],
  ] as const)('a replace that fails leaves a server %s that was', async (state, options) => {
    const moody = await empty();
    await spawn(moody, {}, options);
    if (state === 'stopped') await moody.host.stop('a');
    const { starts } = moody;
    expect(await outcomeOf(moody.host.spawn({ name: 'a', command: 'no-such-command' }, replacing))).toBe(
      'connect_failed',
    );
    expect([moody.row.state, moody.row.lazy, moody.starts]).toEqual([state, state === 'registered', starts]);
  });

  test('a stop while a server replaces another leaves none running', async () => {
    const moody = await empty();
    await spawn(moody);
    moody.mood = 'silent';
    const replaced = outcomeOf(spawn(moody, other(1), replacing));
    await eventually('the new one is started', () => moody.starts === 2);
    const stopped = moody.host.stop('a');
    moody.mood = 'well';
    expect(await replaced).toBe('server_stopped');
    await stopped;
    expect([moody.row.state, alive(moody)]).toEqual(['stopped', []]);
  });

  test('a call during a replace waits for the new server; a call that waited for the old server may be repeated', async () => {
    const moody = await empty();
    await spawn(moody);
    const held = heldCall(moody);
    await eventually('the call is at the server', () => moody.calls === 1);
    const replaced = spawn(moody, other(1), replacing);
    const call = outcomeOf(moody.call());
    await slowly();
    // The old server has not finished: no other runs under its name.
    expect([moody.row.state, moody.starts]).toEqual(['connecting', 1]);
    moody.mood = 'well';
    expect([await held, await call]).toEqual(['ok', 'ok']);
    await replaced;
    expect([moody.starts, alive(moody).length, moody.row.pid]).toEqual([2, 1, Number(moody.log('start')[1])]);

    process.kill(alive(moody)[0] as number, 'SIGKILL');
    await moody.state('backing_off');
    const waiting = failureOf(moody.call());
    await spawn(moody, other(2), replacing);
    const told = await waiting;
    expect([told.code, told.retryable]).toEqual(['reconnecting', true]);
  });

  test('nothing starts once the host begins to close', async () => {
    const moody = await empty();
    await spawn(moody);
    const outcomes = [1, 2, 3].map((number) => outcomeOf(spawn(moody, other(number), replacing)));
    const another = outcomeOf(moody.host.spawn({ name: 'b', ...moody.entry(), lazy: true }));
    await moody.host.close();
    expect(await Promise.all(outcomes)).toEqual(['server_stopped', 'server_stopped', 'server_stopped']);
    expect(await outcomeOf(spawn(moody, other(4), replacing))).toBe('server_stopped');
    expect([await another, moody.starts, alive(moody)]).toEqual(['server_stopped', 1, []]);
  });
});

describe('D-13 spawning a stopped server again', () => {
  test('starts it', async () => {
    const moody = await empty();
    await spawn(moody);
    await moody.host.stop('a');
    await spawn(moody);
    expect([moody.row.state, moody.starts]).toEqual(['ready', 2]);
  });

  test('allows its start, if it is lazy', async () => {
    const moody = await empty();
    await spawn(moody, {}, { lazy: true });
    await moody.host.stop('a');
    await spawn(moody, {}, { lazy: true });
    expect([moody.row.state, moody.starts, await outcomeOf(moody.call())]).toEqual(['registered', 0, 'ok']);
  });
});

describe('D-12 calls in progress', () => {
  test.each(['stop', 'reload', 'close'] as const)('%s lets them finish and takes no new ones', async (how) => {
    const moody = await MoodyHost.open();
    const held = heldCall(moody);
    await eventually('the call is at the server', () => moody.calls === 1);
    const done = how === 'close' ? moody.host.close() : moody.host[how]('a');
    if (how !== 'reload') expect(await outcomeOf(moody.call())).toBe('server_stopped');
    await slowly();
    expect(alive(moody).length).toBe(1);
    moody.mood = 'well';
    expect(await held).toBe('ok');
    await done;
    expect([moody.calls, alive(moody)]).toEqual([1, []]);
  });

  test('a hanging call is ended after the grace time', async () => {
    const moody = await MoodyHost.open({ timeouts: { call: '10m' } });
    const hanging = heldCall(moody, 'mute');
    await eventually('the call is at the server', () => moody.calls === 1);
    const stopped = moody.host.stop('a');
    await moody.clock.advanceAsync(drainMsMax - 1);
    await slowly();
    expect([moody.row.state, alive(moody).length]).toEqual(['stopping', 1]);
    await moody.clock.advanceAsync(1);
    expect(await hanging).toBe('outcome_uncertain');
    await stopped;
    expect([moody.row.state, alive(moody)]).toEqual(['stopped', []]);
  });
});

describe('D-29 the options of spawn', () => {
  const reach = { name: 'b', command: 'perl' };
  test.each<[Record<string, unknown>, Record<string, unknown>, string]>([
    [reach, { bogus: 1 }, 'bogus'],
    [reach, { keepAlive: 5 }, 'keepAlive'],
    [reach, { keepAliveMs: '5m' }, 'keepAliveMs'],
    [reach, { keepAliveMs: -1 }, 'keepAliveMs'],
    [reach, { circuitThreshold: 0 }, 'circuitThreshold'],
    [reach, { circuitResetMs: 0 }, 'circuitResetMs'],
    [reach, { maxRestarts: -1 }, 'maxRestarts'],
    [reach, { restartWindowMs: Number.NaN }, 'restartWindowMs'],
    [reach, { lazy: 'yes' }, 'lazy'],
    [reach, { replace: 'yes' }, 'replace'],
    [{ ...reach, command: '' }, {}, 'command'],
    [{ ...reach, breaker: { threshold: 0 } }, {}, 'breaker.threshold'],
    [{ ...reach, breaker: 5 }, { circuitThreshold: 1 }, 'breaker'],
    [{ command: 'perl' }, {}, 'name'],
  ])('%j with %j: the error names the written option', async (entry, options, field) => {
    const moody = await empty();
    const error = await failureOf(moody.host.spawn(entry as typeof reach, options));
    expect([error.code, error.details.field]).toEqual(['invalid_spec', field]);
    expect(`${error.message} ${error.hint}`).not.toMatch(/mcpServers|other servers/);
    if (field !== 'name') expect(error.message.startsWith(`server 'b': ${field}: `)).toBe(true);
    expect(moody.host.status()).toEqual([]);
  });

  test('an option replaces only its own key', async () => {
    const moody = await empty();
    await spawn(
      moody,
      { breaker: { threshold: 2 }, restart: { max: 0 } },
      { circuitResetMs: 9_000, restartWindowMs: 9 },
    );
    await moody.timeOut(1);
    expect(moody.row.circuit).toBe('closed');
    await moody.timeOut(1);
    expect(moody.row.circuit).toBe('open');
    await moody.clock.advanceAsync(9_000);
    expect(moody.row.circuit).toBe('half_open');
  });
});

test('an unknown name fails the same way everywhere', async () => {
  const moody = await empty();
  const { host } = moody;
  const errors = await Promise.all(
    [host.call('no', 'x'), host.tools('no'), host.stop('no'), host.lease('no')].map(failureOf),
  );
  expect(new Set(errors.map(({ code, message, hint }) => `${code}: ${message}; ${hint}`)).size).toBe(1);
  expect(errors[0]?.hint).toContain('spawn');
});

test('only the first start of a package runner may take 120 s', async () => {
  const moody = MoodyHost.make();
  const { args, env } = moody.entry();
  const [runner, script] = ['npx', 'run.sh'].map((file) => path.join(moody.folder, file)) as [string, string];
  copyFileSync('/bin/sh', runner);
  writeFileSync(script, `exec perl ${args[0]}`);
  chmodSync(runner, 0o755);
  moody.mood = 'silent';
  await moody.start({ mcpServers: { a: { command: runner, args: [script], env, lazy: false } } });
  const tooLate = (limit: string) =>
    eventually(`it was given ${limit}`, async () => {
      await moody.clock.advanceAsync(500);
      return moody.row.lastError?.message.includes(`within ${limit}`);
    });
  await eventually('it is started', () => moody.starts === 1);
  await moody.clock.advanceAsync(119_000);
  expect(moody.row).toMatchObject({ state: 'connecting', run: 1, lastError: undefined });
  await tooLate('2m');
  const secondAtMs = moody.clock.nowMs();
  await tooLate('30s');
  expect(moody.clock.nowMs() - secondAtMs).toBeLessThan(60_000);
  moody.mood = 'well';
});
