import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { type FakeSession, fakeClient, principalOf } from '../../../test/fakes/fake-exchange.js';
import { FakeGateway } from '../../../test/fakes/fake-router.js';
import { FakeUpstreams } from '../../../test/fakes/fake-upstreams.js';
import { Views } from '../views/views.js';
import { ListWatch } from './list-watch.js';

const servers = { fs: { tools: ['read'], prompts: ['p'] }, web: { tools: ['fetch'] } };
const open = (gateway: FakeGateway, id: string, path = '/mcp', principal = principalOf('somebody')) =>
  gateway.open({ id, path, principal });
const methods = ({ heard }: { heard: readonly { method: string }[] }) => heard.map(({ method }) => method);

test('only clients whose own list changed are notified, once, and only when the new list can be read', async () => {
  const gateway = new FakeGateway(servers);
  const all = open(gateway, 'a');
  const fs = open(gateway, 'b', '/mcp/fs');
  const web = open(gateway, 'c', '/mcp/web');
  gateway.upstreams.set('web', { tools: ['fetch', 'search'] });
  gateway.upstreams.set('web', { tools: ['fetch', 'search', 'more'] });
  expect(methods(all)).toEqual([]);
  gateway.clock.advance(25);
  expect(methods(all)).toEqual(['notifications/tools/list_changed']);
  expect(all.heard[0]?.params).toBeUndefined();
  expect(methods(web)).toEqual(['notifications/tools/list_changed']);
  expect(methods(fs)).toEqual([]);
  const { tools } = (await gateway.ask(fakeClient({ path: '/mcp/web' }), 'tools/list')).json();
  expect(tools).toHaveLength(3);
});

test('each list has its own notification', () => {
  const gateway = new FakeGateway(servers);
  const session = open(gateway, 'a');
  gateway.upstreams.set('fs', { tools: ['read'], prompts: ['q'], templates: ['x://{y}'] });
  gateway.clock.advance(25);
  expect(methods(session)).toEqual(['notifications/prompts/list_changed', 'notifications/resources/list_changed']);
});

test('a server that starts, stops or returns the same list again changes no list', () => {
  const gateway = new FakeGateway(servers);
  const session = open(gateway, 'a');
  gateway.upstreams.setState('fs', 'parked');
  gateway.clock.advance(25);
  gateway.upstreams.setState('fs', 'ready');
  gateway.upstreams.set('fs', servers.fs);
  gateway.clock.advance(25);
  expect(methods(session)).toEqual([]);
});

test('E23 a client that received a short-lived list is notified when it has changed again', async () => {
  const gateway = new FakeGateway(servers);
  const session = open(gateway, 'a');
  gateway.upstreams.set('web', { tools: ['fetch', 'brief'] });
  await gateway.ask(fakeClient({ principal: principalOf('somebody') }), 'tools/list');
  gateway.upstreams.set('web', servers.web);
  gateway.clock.advance(25);
  expect(methods(session)).toEqual(['notifications/tools/list_changed']);
  gateway.upstreams.set('web', servers.web);
  gateway.clock.advance(25);
  expect(methods(session)).toHaveLength(1);
});

test('a change that the principal may not see causes no notification', () => {
  const gateway = new FakeGateway(servers);
  gateway.upstreams.allow(({ id }, server, tool) => id !== 'guest' || (server === 'web' && tool !== 'admin'));
  const guest = open(gateway, 'g', '/mcp', principalOf('guest'));
  const somebody = open(gateway, 's');
  gateway.upstreams.set('web', { tools: ['fetch', 'admin'] });
  gateway.upstreams.set('fs', { tools: [] });
  gateway.clock.advance(25);
  expect(methods(guest)).toEqual([]);
  expect(methods(somebody)).toEqual(['notifications/tools/list_changed', 'notifications/prompts/list_changed']);
});

test('rules that change are noticed with the next request', async () => {
  const gateway = new FakeGateway(servers);
  const session = open(gateway, 'a');
  gateway.upstreams.allow((_principal, server) => server === 'web');
  await gateway.ask(fakeClient(), 'ping');
  gateway.clock.advance(25);
  expect(methods(session)).toEqual(['notifications/tools/list_changed', 'notifications/prompts/list_changed']);
});

test('nothing is compared, and no timer runs, without clients', () => {
  const gateway = new FakeGateway(servers);
  const session = open(gateway, 'a');
  session.end();
  gateway.upstreams.set('fs', { tools: [] });
  expect(gateway.clock.pendingTimers).toBe(0);
});

test('a client with a new role is notified of the lists that differ, and of later changes that the role may see', () => {
  const gateway = new FakeGateway(servers);
  gateway.upstreams.allow(({ role }, server) => role === 'all' || server === 'web');
  const as = (id: string, role: string) => ({ id, role, scopes: [] });
  const guest = as('ann', 'guest');
  const ann = open(gateway, 'a', '/mcp', guest);
  const bob = open(gateway, 'b', '/mcp', as('bob', 'guest'));
  gateway.router.keysChanged((principal) => (principal === guest ? as('ann', 'all') : principal));
  expect([methods(ann), methods(bob)]).toEqual([
    ['notifications/tools/list_changed', 'notifications/prompts/list_changed'],
    [],
  ]);
  gateway.upstreams.set('fs', { ...servers.fs, tools: ['read', 'write'] });
  gateway.clock.advance(25);
  expect([methods(ann).length, methods(bob).length]).toEqual([3, 0]);
  ann.end();
  bob.end();
  gateway.upstreams.set('fs', { tools: [] });
  expect(gateway.clock.pendingTimers).toBe(0);
});

test('a thousand keys of one role are compared once, and each is notified', () => {
  const gateway = new FakeGateway(servers);
  gateway.upstreams.accessKeyOf = ({ role }) => `${role}`;
  const asked: string[] = [];
  gateway.upstreams.allow((_principal, server, tool) => asked.push(`${server} ${tool}`) > 0);
  const sessions = Array.from({ length: 1_000 }, (_, i) => open(gateway, `${i}`, '/mcp', principalOf(`p${i}`, 'some')));
  asked.length = 0;
  gateway.upstreams.set('web', { tools: ['fetch', 'search'] });
  gateway.clock.advance(25);
  expect(asked).toEqual(['web fetch', 'web search']);
  expect(sessions.filter((session) => methods(session).length === 1)).toHaveLength(1_000);
});

test('a change of rules splits keys that shared a view, and notifies those that see another list', async () => {
  const gateway = new FakeGateway(servers);
  gateway.upstreams.accessKeyOf = () => 'all';
  const [ann, bob] = ['ann', 'bob'].map((id) => open(gateway, id, '/mcp', principalOf(id)));
  gateway.upstreams.accessKeyOf = ({ id }) => id;
  gateway.upstreams.allow(({ id }, server) => id === 'ann' || server === 'web');
  await gateway.ask(fakeClient(), 'ping');
  gateway.clock.advance(25);
  expect(methods(ann as FakeSession)).toEqual([]);
  expect(methods(bob as FakeSession)).toEqual([
    'notifications/tools/list_changed',
    'notifications/prompts/list_changed',
  ]);
});

test('other events get their turn while many clients are notified', async () => {
  let nowMs = 0;
  let isDue = () => {};
  const clock = { nowMs: () => nowMs, date: () => new Date(0), at: (_atMs: number, run: () => void) => (isDue = run) };
  const upstreams = new FakeUpstreams(servers);
  const views = new Views(upstreams);
  const watch = new ListWatch(views, clock);
  let notified = 0;
  for (let i = 0; i < 10; i++)
    watch.watch(fakeClient(), () => {
      notified++;
      nowMs++;
    });
  upstreams.set('web', { tools: ['search'] });
  views.changed('web');
  watch.changed();
  isDue();
  const counts = [notified];
  for (let turn = 0; turn < 3; turn++) {
    await nextTurn();
    counts.push(notified);
  }
  expect(counts).toEqual([3, 6, 9, 10]);
});
