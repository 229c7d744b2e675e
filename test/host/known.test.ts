/**
 * Facts and lists that a host knows of real servers of both eras, running or not: how they are kept up to date, also over
 * restarts and in the next host. Also tests which subscribers get updates of resources.
 */
import type { ServerResponse } from 'node:http';
import path from 'node:path';
import Database from 'libsql';
import { describe, expect, test } from 'vitest';
import type { Upstreams } from '../../src/gateway/upstreams.js';
import { createHost } from '../../src/host/host.js';
import { embedder } from '../../src/policy/operation.js';
import { eventually } from '../eventually.js';
import { events, json, result, startServer } from '../fakes/http-server.js';
import { fakePrincipal } from '../fakes/policy-call.js';
import { entryPoint } from '../fixtures/real-servers.js';
import { failureOf } from './harness.js';
import { type Era, ListedHost } from './listed-server.js';

const eras: readonly Era[] = ['legacy', 'modern'];
const prompt = (name: string) => ({ name });
const resource = (uri: string) => ({ uri, name: uri });
const full = {
  tools: [{ name: 't' }],
  prompts: [prompt('p')],
  resources: [resource('r:1')],
  templates: [{ uriTemplate: 'r:{id}', name: 'r' }],
};
const all = ['tools/list', 'prompts/list', 'resources/list', 'resources/templates/list'] as const;

describe.each(eras)('a %s server', (era) => {
  test('its facts and lists are known after it has run, and in the next host without starting it', async () => {
    const listed = ListedHost.make();
    const config = { mcpServers: { a: listed.entry('a', era) } };
    listed.list('a', full);
    const host = await listed.start(config);
    expect(host.known('a')).toMatchObject({ state: 'registered', isReady: false, facts: undefined });
    expect([host.names(), host.known('b')]).toEqual([['a'], undefined]);
    await host.start('a');
    await eventually('all lists are known', () => all.every((method) => listed.keys(method)?.length === 1));
    const before = host.known('a');
    expect(before).toMatchObject({ state: 'ready', isReady: true, facts: { era, instructions: 'be kind' } });
    expect(JSON.parse(String(before?.facts?.serverInfo))).toMatchObject({ name: 'listed' });
    expect(JSON.parse(String(before?.facts?.capabilities))).toMatchObject({ prompts: { listChanged: true } });

    const next = await listed.start(config);
    const after = next.known('a');
    expect(after).toMatchObject({ state: 'registered', isReady: false });
    expect([after?.facts, after?.lists]).toEqual([before?.facts, before?.lists]);
    expect(listed.asked('start').length).toBe(1);
    expect(listed.problems).toEqual([]);
  });

  test('a changed list is announced when the new one is stored, and the others are not read again', async () => {
    const listed = await ListedHost.open(era, { lazy: false });
    const { host } = listed;
    await eventually('all lists are known', () => all.every((method) => listed.keys(method) !== undefined));
    const heard: (string[] | undefined)[] = [];
    host.onKnownChanged(() => heard.push(listed.keys('prompts/list')));
    const { revision } = host.known('a') ?? { revision: Number.NaN };
    listed.list('a', full);
    for (let i = 0; i < 20; i++) await listed.say('prompts/list_changed');
    await eventually('the new prompts are known', () => listed.keys('prompts/list')?.length === 1);
    await eventually('the listener was notified', () => heard.length > 0);
    expect(heard).toEqual([['p']]);
    expect(host.known('a')?.revision).toBeGreaterThan(revision);
    expect(all.map((method) => listed.asked(method).length).slice(2)).toEqual([1, 1]);
    await listed.say('resources/list_changed');
    await listed.say('tools/list_changed');
    await eventually('all new lists are known', () => all.every((method) => listed.keys(method)?.length === 1));
  });

  test('X11 a change that could not be stored is still a change after new settings, and after the next start', async () => {
    const listed = ListedHost.make();
    listed.list('a', { tools: [{ name: 't', description: 'old' }] });
    await listed.start({ mcpServers: { a: listed.entry('a', era, { pins: 'block' }) } });
    const shown = () =>
      listed.host
        .known('a')
        ?.lists.get('tools/list')
        ?.items.flatMap(({ key, raw }) => (key === 't' ? [JSON.parse(String(raw)).description as string] : []));
    await listed.host.start('a');
    for (const name of ['t', 'say']) listed.host.approve('a', name, String(listed.host.pin('a', name)?.hash));
    expect(shown()).toEqual(['old']);
    const database = new Database(path.join(listed.folder, 'state', 'state.db'));
    database.exec("CREATE TRIGGER no_pins BEFORE UPDATE ON pin_rows BEGIN SELECT RAISE(FAIL, 'no room'); END");
    listed.list('a', { tools: [{ name: 't', description: 'new', annotations: { destructiveHint: true } }] });
    await listed.say('tools/list_changed');
    await eventually('the change is noticed', () => listed.host.pin('a', 't')?.status === 'changed');
    expect(shown()).toEqual(['old']);
    const settings = { pins: 'block', env: { NEW: '1' } };
    expect(await listed.host.reconfigure({ mcpServers: { a: listed.entry('a', era, settings) } })).toMatchObject({
      changed: ['a'],
    });
    expect([shown(), listed.host.pin('a', 't')?.status]).toEqual([['old'], 'changed']);
    database.exec('DROP TRIGGER no_pins');
    database.close();
    await listed.host.start('a');
    await listed.start({ mcpServers: { a: listed.entry('a', era, settings) } });
    expect([shown(), listed.host.pin('a', 't')?.status]).toEqual([['old'], 'changed']);
  });

  test('X11 an approval without a known list removes no pin', async () => {
    const listed = ListedHost.make();
    listed.list('a', { tools: [{ name: 't' }, { name: 'u' }] });
    const config = { mcpServers: { a: listed.entry('a', era, { pins: 'block' }) } };
    await listed.start(config);
    await listed.host.start('a');
    await listed.host.close();
    const database = new Database(path.join(listed.folder, 'state', 'state.db'));
    database.exec('DELETE FROM listing_sets');
    database.close();
    const host = await listed.start(config);
    host.approve('a', 't', String(host.pin('a', 't')?.hash));
    expect(['t', 'u'].map((tool) => host.pin('a', tool)?.status)).toEqual(['approved', 'new']);
    expect([host.known('a')?.lists.size, listed.keys('tools/list')]).toEqual([0, undefined]);
    await host.start('a');
    expect(listed.keys('tools/list')).toEqual(['t']);
  });

  test('with the policy to block, a changed tool is shown as approved, and a new one is hidden', async () => {
    const listed = ListedHost.make();
    listed.list('a', { tools: [{ name: 't', description: 'old' }] });
    await listed.start({ mcpServers: { a: listed.entry('a', era, { pins: 'block' }) } });
    const { host } = listed;
    await host.start('a');
    expect(listed.keys('tools/list')).toEqual([]);
    const approve = (tool: string) => host.approve('a', tool, String(host.pin('a', tool)?.hash));
    approve('say');
    approve('t');
    expect(listed.keys('tools/list')).toEqual(['t']);
    listed.list('a', {
      tools: [{ name: 't', description: 'new', annotations: { destructiveHint: true } }, { name: 'u' }],
    });
    await listed.say('tools/list_changed');
    await eventually('the change is noticed', () => host.pin('a', 't')?.status === 'changed');
    const texts = () =>
      host
        .known('a')
        ?.lists.get('tools/list')
        ?.items.map(({ raw }) => String(raw))
        .join() ?? '';
    expect(texts()).toContain('"old"');
    expect(texts()).not.toContain('"new"');
    expect(listed.keys('tools/list')).toEqual(['t']);
    listed.told.length = 0;
    approve('t');
    expect(texts()).toContain('"new"');
    await eventually('the approval is announced', () => listed.told.length > 0);
  });

  test('subscribers get updates, also after a restart, and the server gets one subscription for all', async () => {
    const listed = await ListedHost.open(era);
    const host: Omit<Upstreams, 'request' | 'endInstance'> & typeof listed.host = listed.host;
    const heard: string[] = [];
    const subscribe = (who: string, uri: string) =>
      host.subscribe('a', uri, fakePrincipal(who), (params) => {
        heard.push(`${who} ${(JSON.parse(String(params)) as { uri: string }).uri}`);
      });
    const [adaEnds, bobEnds] = await Promise.all([subscribe('ada', 'r:1'), subscribe('bob', 'r:1')]);
    const cyEnds = await subscribe('cy', 'r:2');
    expect(host.status()[0]).toMatchObject({ state: 'ready', leases: { bindings: 3, calls: 0 }, running: 0 });
    const requests = () =>
      era === 'legacy'
        ? listed.asked('resources/subscribe').map((line) => String(line.split(' ')[1]))
        : listed.asked('listen').map((line) => /resourceSubscriptions":\[(.*?)\]/.exec(line)?.[1]?.replaceAll('"', ''));
    // A modern server may get several listen requests: the first for changed lists only, later ones also with the subscriptions so far.
    if (era === 'legacy') expect(requests()).toEqual(['r:1', 'r:2']);
    else expect([requests().at(-1), requests().length < 5]).toEqual(['r:1,r:2', true]);
    await listed.say('resources/updated', { uri: 'r:1' });
    await eventually('both subscribers got the update', () => heard.length === 2);
    expect(heard.sort()).toEqual(['ada r:1', 'bob r:1']);

    await host.call('a', 'exit').catch(() => {});
    await eventually('it runs again', () => listed.asked('start').length === 2 && host.known('a')?.isReady);
    const both = () => requests().slice(-2).join() === 'r:1,r:2' || requests().at(-1) === 'r:1,r:2';
    await eventually('it was asked again', () => requests().length > 2 && both());
    adaEnds();
    adaEnds();
    await listed.say('resources/updated', { uri: 'r:1' });
    await listed.say('resources/updated', { uri: 'r:2' });
    await eventually('both remaining subscribers got the update', () => heard.length === 4);
    expect(heard.slice(2).sort()).toEqual(['bob r:1', 'cy r:2']);

    expect(listed.asked('resources/unsubscribe')).toEqual([]);
    bobEnds();
    if (era === 'legacy')
      await eventually(
        'the server got the unsubscribe',
        () => listed.asked('resources/unsubscribe').join() === 'resources/unsubscribe r:1',
      );
    else await eventually('the server got the new listen request', () => requests().at(-1) === 'r:2');
    cyEnds();
    expect(host.status()[0]).toMatchObject({ leases: { bindings: 0, calls: 0 } });
    expect(listed.problems).toEqual([]);
  });
});

describe('subscriptions', () => {
  test('a principal that may not read the server may not subscribe either, and nothing is started or leased', async () => {
    const listed = ListedHost.make();
    const roles = { some: { allow: ['a/say'] }, all: { allow: ['a/*'] } };
    const host = await listed.start({ mcpServers: { a: listed.entry('a', 'legacy') }, roles });
    const as = (role: string) => ({ id: role, role, scopes: [] });
    const refused = await failureOf(host.subscribe('a', 'r:1', as('some'), () => {}));
    expect([refused.code, listed.asked('start').length, host.status()[0]?.refCount]).toEqual(['denied', 0, 0]);
    const unknown = await failureOf(host.subscribe('b', 'r:1', as('all'), () => {}));
    expect(unknown.code).toBe('denied');
    const heard: string[] = [];
    const end = await host.subscribe('a', 'r:1', as('all'), (params) => heard.push(String(params)));
    await listed.say('resources/updated', { uri: 'r:1', n: 1 });
    host.setAllowlist(({ principal }) =>
      principal.id === 'all' ? { allow: false, reason: 'no more' } : { allow: true },
    );
    await listed.say('resources/updated', { uri: 'r:1', n: 2 });
    expect(heard.map((params) => (JSON.parse(params) as { n: number }).n)).toEqual([1]);
    end();
    expect([host.isAllowed(as('some'), 'a', undefined), host.isAllowed(as('some'), 'a', 'say')]).toEqual([true, true]);
    expect([host.isAllowed(as('some'), 'a', 'end'), host.isAllowed(as('none'), 'a', undefined)]).toEqual([
      false,
      false,
    ]);
  });

  test('a reload of a lazy server with subscribers starts it again', async () => {
    const listed = await ListedHost.open('legacy');
    await listed.host.subscribe('a', 'r:1', embedder, () => {});
    await listed.host.reload('a');
    await eventually('it was asked again', () => listed.asked('resources/subscribe').length === 2);
  });
});

describe('the listen stream of a modern server', () => {
  test('is opened again if the server ends it, and lists that may have changed meanwhile are read', async () => {
    const listed = await ListedHost.open('modern', { lazy: false });
    await eventually('its prompts are known', () => listed.keys('prompts/list')?.length === 0);
    expect(listed.asked('listen').length).toBe(1);
    await listed.host.call('a', 'end');
    listed.list('a', full);
    await eventually('it listens again', () => listed.asked('listen').length === 2);
    await eventually('all new lists are known', () => all.every((method) => listed.keys(method)?.length === 1));
  });

  test('is no call, and does not delay a stop', async () => {
    const listed = await ListedHost.open('modern');
    await listed.host.start('a');
    expect(listed.host.status()[0]).toMatchObject({ state: 'ready', refCount: 0, running: 0 });
    await listed.host.stop('a');
    expect(listed.asked('unlisten').length).toBe(1);
  });

  test('works over HTTP too, also after it was cut', async () => {
    const streams: ServerResponse[] = [];
    let tools = 0;
    const server = await startServer(({ id, rpcMethod }, response) => {
      if (rpcMethod === 'server/discover')
        return json(
          response,
          result(id, { supportedVersions: ['2026-07-28'], capabilities: { tools: { listChanged: true } } }),
        );
      if (rpcMethod === 'tools/list')
        return json(response, result(id, { tools: [{ name: `t${++tools}`, inputSchema: { type: 'object' } }] }));
      streams.push(events(response));
      say(streams.length - 1, 'subscriptions/acknowledged');
    });
    const say = (stream: number, method: string) =>
      streams[stream]?.write(`data: ${JSON.stringify({ jsonrpc: '2.0', method: `notifications/${method}` })}\n\n`);
    const problems: unknown[] = [];
    const onProblem = (error: unknown) => problems.push(error);
    const host = await createHost({ mcpServers: { a: { url: server.url, pins: 'off' } } }, { onProblem });
    try {
      await host.start('a');
      const shown = (tool: string) => host.known('a')?.lists.get('tools/list')?.items[0]?.key === tool;
      expect([streams.length, shown('t1')]).toEqual([1, true]);
      say(0, 'tools/list_changed');
      await eventually('the new tools are known', () => shown('t2'));
      streams[0]?.destroy();
      await eventually('it listens again, and the tools were read', () => streams.length === 2 && shown('t3'));
      say(1, 'tools/list_changed');
      await eventually('the newest tools are known', () => shown('t4'));
      expect(host.status()[0]).toMatchObject({ state: 'ready', restartCount: 0 });
      await host.stop('a');
      await server.until(() => server.cut === 2);
      expect(problems).toEqual([]);
    } finally {
      await host.close();
      await server.close();
    }
  });
});

describe('startupListing', () => {
  test('resolves when all new servers are known, and is then finished', async () => {
    const listed = ListedHost.make();
    const config = { mcpServers: { a: listed.entry('a', 'legacy'), b: listed.entry('b', 'modern', { lazy: false }) } };
    const host = await listed.start(config, { learnAtBoot: true });
    expect(listed.keys('prompts/list')).toBeUndefined();
    await host.startupListing();
    expect([listed.keys('resources/list', 'a'), listed.keys('resources/list', 'b')]).toEqual([[], []]);
    expect(host.startupListing()).toBeUndefined();
    const next = await listed.start(config, { learnAtBoot: true });
    expect(next.startupListing()).toBeUndefined();
    expect(listed.asked('start').length).toBe(1);
  });
});

test('server-everything: prompts, resources and templates are known as well as tools', async () => {
  const entry = { command: process.execPath, args: [entryPoint('@modelcontextprotocol/server-everything'), 'stdio'] };
  const host = await createHost({ mcpServers: { everything: entry } });
  try {
    await host.start('everything');
    const lists = () => host.known('everything')?.lists;
    await eventually('all lists are known', () => all.every((method) => (lists()?.get(method)?.items.length ?? 0) > 0));
    expect(host.known('everything')?.facts?.era).toBe('legacy');
  } finally {
    await host.close();
  }
});
