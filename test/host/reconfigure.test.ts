/**
 * A configuration that is read again while servers run and calls are in progress, with real child processes.
 */
import { describe, expect, test } from 'vitest';
import type { HostOptions } from '../../src/host/host-interface.js';
import { eventually } from '../eventually.js';
import { failureOf, outcomeOf } from './harness.js';
import { ListedHost } from './listed-server.js';

async function open() {
  const listed = ListedHost.make();
  const entry = (name: string, more: Record<string, unknown> = {}) => listed.entry(name, 'legacy', more);
  const starts = (...names: string[]) => names.map((name) => listed.asked('start', name).length);
  await listed.start({ mcpServers: { a: entry('a'), b: entry('b'), c: entry('c') } });
  const { host } = listed;
  for (const name of ['a', 'b', 'c']) await host.start(name);
  return { listed, host, entry, starts };
}

/** A call that the server has received. */
async function callOf({ listed, host }: Awaited<ReturnType<typeof open>>, name: string) {
  const before = listed.asked('tools/call', name).length;
  const outcome = outcomeOf(host.call(name, 'sleep', { ms: 500 }));
  await eventually('the call is at the server', () => listed.asked('tools/call', name).length > before);
  return outcome;
}

describe('reconfigure', () => {
  test('only changed servers restart; removed servers stop, and new ones are registered', async () => {
    const set = await open();
    const { listed, host, entry, starts } = set;
    const calls = ['a', 'b', 'c'].map((name) => callOf(set, name));
    const outcomes = await Promise.all(calls.map(async (call) => [await call]));
    expect(outcomes.flat()).toEqual(['ok', 'ok', 'ok']);
    const underWay = callOf(set, 'a');
    await eventually('it is under way', () => host.status()[0]?.running === 1);
    const mcpServers = { a: entry('a'), b: entry('b', { env: { NEW: '1' }, lazy: false }), d: entry('d') };
    const became = await host.reconfigure({ mcpServers });
    expect(became).toEqual({ added: ['d'], changed: ['b'], removed: ['c'] });
    expect([host.names(), host.known('c')]).toEqual([['a', 'b', 'd'], undefined]);
    expect((await failureOf(host.call('c', 'say'))).code).toBe('server_not_found');
    expect(await underWay).toBe('ok');
    await host.call('d', 'sleep', { ms: 0 });
    await eventually('the eager one runs', () => host.known('b')?.isReady);
    expect(starts('a', 'b', 'c', 'd')).toEqual([1, 2, 1, 1]);
    await eventually('their changes are announced', () => ['b', 'c', 'd'].every((name) => listed.told.includes(name)));
    expect(listed.problems).toEqual([]);
  });

  test('a removed server is gone at once, also without a replacement', async () => {
    const listed = ListedHost.make();
    await listed.start({ mcpServers: { a: listed.entry('a', 'legacy') } });
    const { host } = listed;
    expect(await outcomeOf(host.call('a', 'sleep', { ms: 0 }))).toBe('ok');
    expect(await host.reconfigure({ mcpServers: {} })).toMatchObject({ removed: ['a'] });
    expect(host.known('a')).toBeUndefined();
    expect((await failureOf(host.call('a', 'say'))).code).toBe('server_not_found');
    // If another server takes the name and fails, there is nothing to restore.
    await failureOf(host.spawn({ name: 'a', command: '/nowhere/to/be/found' }));
    expect([host.names(), host.known('a')]).toEqual([[], undefined]);
  });

  test('an unreadable configuration changes nothing; an unreadable entry leaves its server unchanged', async () => {
    const { listed, host, entry, starts } = await open();
    const { rulesRevision } = host;
    const broken = await failureOf(host.reconfigure({ mcpServers: {}, role: {} } as object));
    expect([broken.code, host.names(), host.rulesRevision]).toEqual(['invalid_spec', ['a', 'b', 'c'], rulesRevision]);
    const mcpServers = { a: { ...entry('a'), comand: 'typo' }, b: entry('b'), c: entry('c') };
    expect(await host.reconfigure({ mcpServers })).toEqual({ added: [], changed: [], removed: [] });
    expect(await outcomeOf(host.call('a', 'sleep', { ms: 0 }))).toBe('ok');
    expect(starts('a', 'b', 'c')).toEqual([1, 1, 1]);
    expect(listed.problems).toMatchObject([{ details: { field: expect.stringContaining('mcpServers.a') as string } }]);
  });

  test('roles, budgets and groups apply from the next call on', async () => {
    const { listed, host, entry, starts } = await open();
    const { rulesRevision } = host;
    const mcpServers = { a: entry('a'), b: entry('b'), c: entry('c') };
    const principal = { id: 'ada', role: 'dev', scopes: [] };
    const call = (tool: string) => outcomeOf(host.call('a', tool, { ms: 0 }, { principal }));
    const allow = (...patterns: string[]) => ({ dev: { allow: patterns } });
    await host.reconfigure({ mcpServers, roles: allow('a/sleep'), groups: { some: ['a', 'b'] } });
    expect([await call('sleep'), await call('end'), host.groups.get('some')]).toEqual(['ok', 'denied', ['a', 'b']]);
    listed.told.length = 0;
    const budgets = { roles: { dev: { calls: 1, window: '1h' } } };
    await host.reconfigure({ mcpServers, roles: allow('a/*'), budgets });
    expect([await call('end'), await call('end'), host.groups.size]).toEqual(['ok', 'budget_exceeded', 0]);
    expect(host.rulesRevision).toBe(rulesRevision + 2);
    await eventually('the changes are announced', () => listed.told.length >= 3);
    expect(starts('a', 'b', 'c')).toEqual([1, 1, 1]);
  });

  test('a spawned server stays, even if the configuration has an entry for its name', async () => {
    const { listed, host, entry, starts } = await open();
    await host.spawn({ name: 's', ...entry('s') });
    const mcpServers = { a: entry('a'), s: entry('s', { lazy: true, env: { NEW: '1' } }) };
    expect(await host.reconfigure({ mcpServers })).toEqual({ added: [], changed: [], removed: ['b', 'c'] });
    expect([host.names(), starts('s')]).toEqual([['a', 's'], [1]]);
    expect(listed.problems).toMatchObject([{ code: 'invalid_spec', details: { field: 'mcpServers.s' } }]);
    expect(await host.reconfigure({ mcpServers: {} })).toMatchObject({ removed: ['a'] });
    expect(await outcomeOf(host.call('s', 'sleep', { ms: 0 }))).toBe('ok');
  });

  test('many reloads at once run one after another, and the last one applies', async () => {
    const { host, entry } = await open();
    const edits = [{ NEW: '1' }, { NEW: '2' }, { NEW: '3' }];
    await Promise.all(edits.map((env) => host.reconfigure({ mcpServers: { a: entry('a', { env }) } })));
    expect(host.names()).toEqual(['a']);
    const spec = host.known('a')?.definition.spec as { env?: Record<string, string> } | undefined;
    expect(spec?.env).toMatchObject({ NEW: '3' });
    expect(await outcomeOf(host.call('a', 'sleep', { ms: 0 }))).toBe('ok');
    await host.close();
    expect((await failureOf(host.reconfigure({}))).code).toBe('server_stopped');
    expect(host.known('a')).toBeUndefined();
  });

  test.each([
    ['kept on disk', {}],
    ['kept nowhere', { stateDir: undefined }],
  ])('after an edit, the old lists of a server are shown until it lists again: %s', async (_kept, options) => {
    const listed = ListedHost.make();
    listed.list('a', { tools: [{ name: 't1' }], prompts: [{ name: 'p' }] });
    const entry = (more: object = {}) => listed.entry('a', 'legacy', { pins: 'off', ...more });
    const keys = listed.keys.bind(listed);
    const host = await listed.start({ mcpServers: { a: entry() } }, options as HostOptions);
    await host.start('a');
    await eventually('its prompts are known', () => keys('prompts/list')?.length === 1);
    listed.list('a', { tools: [{ name: 't2' }], prompts: [{ name: 'p' }] });
    const shown = new Set<string>();
    const unlisten = host.onKnownChanged(() =>
      shown.add(`${keys('tools/list')} ${keys('prompts/list')} ${host.known('a')?.facts !== undefined}`),
    );
    await host.reconfigure({ mcpServers: { a: entry({ env: { NEW: '1' }, lazy: false }) } });
    await eventually('the new list is known', () => `${keys('tools/list')}` === 't2');
    await eventually('it runs', () => host.known('a')?.isReady);
    expect([...shown]).toEqual(['t1 p true', 't2 p true']);
    unlisten();
    // Another program is another server.
    const other = entry();
    await host.reconfigure({ mcpServers: { a: { ...other, args: [...other.args, 'other'] } } });
    expect([keys('tools/list'), host.known('a')?.facts]).toEqual([undefined, undefined]);
  });

  test('a leased server runs again with its new definition', async () => {
    const { host, entry, starts } = await open();
    const heard: Buffer[] = [];
    const end = await host.subscribe('a', 'r:1', { id: 'ada', role: undefined, scopes: [] }, (params) =>
      heard.push(params),
    );
    await host.reconfigure({ mcpServers: { a: entry('a', { env: { NEW: '1' } }) } });
    await eventually('it runs again', () => starts('a')[0] === 2 && host.known('a')?.isReady);
    await host.call('a', 'say', { method: 'notifications/resources/updated', params: { uri: 'r:1' } });
    await eventually('the update has arrived', () => heard.length === 1);
    end();
  });

  test('a subscribed server that is removed and added again runs again until the subscription ends', async () => {
    const { host, entry, starts } = await open();
    const heard: Buffer[] = [];
    const principal = { id: 'ada', role: undefined, scopes: [] };
    const end = await host.subscribe('a', 'r:1', principal, (params) => heard.push(params));
    await host.reconfigure({ mcpServers: {} });
    await host.reconfigure({ mcpServers: { a: entry('a', { keepAlive: '50ms' }) } });
    await eventually('it runs again', () => starts('a')[0] === 2 && host.known('a')?.isReady);
    await host.call('a', 'say', { method: 'notifications/resources/updated', params: { uri: 'r:1' } });
    await eventually('the update has arrived', () => heard.length === 1);
    expect(host.status()[0]?.leases.bindings).toBe(1);
    end();
    await eventually('it stops when it is idle', () => host.known('a')?.state === 'registered');
    expect(starts('a')).toEqual([2]);
  });
});
