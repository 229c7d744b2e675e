import { describe, expect, test } from 'vitest';
import { fakeClient, principalOf } from '../../../test/fakes/fake-exchange.js';
import { FakeUpstreams } from '../../../test/fakes/fake-upstreams.js';
import type { EndpointId } from '../exchange.js';
import { Views } from './views.js';

const { endpoint, principal } = fakeClient();

const make = (servers: ConstructorParameters<typeof FakeUpstreams>[0]) => {
  const upstreams = new FakeUpstreams(servers);
  const views = new Views(upstreams);
  upstreams.onKnownChanged((server) => views.changed(server));
  return { upstreams, views, now: () => views.of(endpoint, principal) };
};

describe('a view', () => {
  test('stays the same object while nothing in it changes, whatever states its servers are in', () => {
    const { upstreams, now } = make({ a: { tools: ['t'] } });
    const first = now();
    upstreams.setState('a', 'parked');
    expect(now()).toBe(first);
    upstreams.set('a', { tools: ['t', 'u'] });
    expect(now()).not.toBe(first);
  });

  test('is replaced when rules, definitions or servers change', () => {
    const { upstreams, now } = make({ a: { tools: ['t'] } });
    const first = now();
    upstreams.allow(() => true);
    const second = now();
    expect(second).not.toBe(first);
    upstreams.set('a', { tools: ['t'], definition: { tools: { deny: ['*'] } } });
    expect(now().table('tools/list').entries).toEqual([]);
    upstreams.set('b', { tools: [] });
    expect(now().servers).toEqual(['a', 'b']);
  });

  test('is empty after its server was removed or hidden, and the endpoint does not exist any more', () => {
    const { upstreams, views } = make({ a: { tools: ['t'] }, b: { tools: ['t'] } });
    const [a, b] = ['a', 'b'].map((server) => ({ kind: 'server', server }) as const) as [EndpointId, EndpointId];
    const both = () => [a, b].map((each) => views.has(each, principal));
    const look = () => [a, b].map((each) => views.of(each, principal).servers.length);
    look();
    expect(both()).toEqual([true, true]);
    upstreams.allow((_principal, server) => server !== 'a');
    expect([look(), both()]).toEqual([
      [0, 1],
      [false, true],
    ]);
    upstreams.remove('b');
    expect([look(), both()]).toEqual([
      [0, 0],
      [false, false],
    ]);
  });

  test('waits for the startup listing of its own servers only', () => {
    const unseen = { tools: [], capabilities: null };
    const { upstreams, views, now } = make({ a: unseen, b: { tools: ['t'] }, c: unseen });
    void views.of({ kind: 'server', server: 'b' }, principal).startupListing();
    void views.of({ kind: 'server', server: 'c' }, principal).startupListing();
    void now().startupListing();
    expect(upstreams.listingsRequested).toEqual([['c'], ['a', 'c']]);
  });

  test('is shared by principals with the same rights, and by no others', () => {
    const { upstreams, views } = make({ a: { tools: ['t', 'u'] } });
    upstreams.accessKeyOf = ({ role }) => `${role}`;
    upstreams.allow(({ role }, _server, tool) => role === 'all' || tool !== 'u');
    const of = (id: string, role: string) => views.of(endpoint, principalOf(id, role));
    expect(of('x', 'all')).toBe(of('y', 'all'));
    expect(of('x', 'all')).not.toBe(of('x', 'some'));
    expect(of('x', 'all').findTool('a__u')).toBeDefined();
    expect(of('x', 'some').findTool('a__u')).toBeUndefined();
    expect(views.of({ kind: 'server', server: 'a' }, principalOf('x', 'all'))).not.toBe(of('x', 'all'));
  });

  test('is built once for each role and endpoint: 500 views for a thousand principals at fifty endpoints', () => {
    const servers = Object.fromEntries(Array.from({ length: 50 }, (_, i) => [`s${i}`, { tools: ['t'] }]));
    const { upstreams, views } = make(servers);
    upstreams.accessKeyOf = ({ role }) => `${role}`;
    let asked = 0;
    upstreams.allow(() => ++asked > 0);
    const principals = Array.from({ length: 1_000 }, (_, i) => principalOf(`p${i}`, `role${i % 10}`));
    const endpoints = Object.keys(servers).map((server) => ({ kind: 'server', server }) as const);
    const built = new Set();
    for (let round = 0; round < 3; round++)
      for (const each of principals)
        for (const at of endpoints) {
          const view = views.of(at, each);
          if (view.findTool('t')) built.add(view);
        }
    expect([built.size, asked]).toEqual([500, 1_000]);
  });

  test('checks only the tools of the changed server again', () => {
    const { upstreams, now } = make({ a: { tools: ['t'] }, b: { tools: ['u', 'v'] } });
    const asked: (string | undefined)[] = [];
    upstreams.allow((_principal, _server, tool) => asked.push(tool) > 0);
    now().table('tools/list');
    asked.length = 0;
    upstreams.set('a', { tools: ['t', 'x'] });
    expect(now().findTool('a__x')).toEqual({ server: 'a', tool: 'x' });
    expect(asked).toEqual(['t', 'x']);
  });

  test('applies the rules to the names that servers use', () => {
    const { upstreams, now } = make({ a: { tools: ['old'], definition: { tools: { rename: { old: 'new' } } } } });
    const asked: (string | undefined)[] = [];
    upstreams.allow((_principal, _server, tool) => {
      asked.push(tool);
      return true;
    });
    expect(now().findTool('a__new')).toEqual({ server: 'a', tool: 'old' });
    expect(asked).toEqual([undefined, 'old']);
  });

  test.each([
    ['shortest time of its servers', { a: 5, b: 3 }, 3],
    ['time 0 of one server', { a: 5, b: 0 }, 0],
  ])('may be cached for the %s', (_title, ttls, expected) => {
    const { now } = make({ a: { tools: ['t'], ttlMs: ttls.a }, b: { tools: ['t'], ttlMs: ttls.b } });
    expect(now().table('tools/list').ttlMs).toBe(expected);
  });

  test('must not be cached while one of its servers has never run, or while it is empty', () => {
    const { now } = make({ a: { tools: ['t'], ttlMs: 5 }, b: { capabilities: null } });
    expect(now().table('tools/list').ttlMs).toBe(0);
    expect(now().table('prompts/list')).toMatchObject({ ttlMs: 0, isPublic: false });
  });

  test('is public only if nothing in it depends on the caller', () => {
    const servers = { a: { tools: ['t'], isPublic: true }, b: { tools: ['t'], isPublic: true } };
    const { upstreams, now, views } = make(servers);
    expect(now().table('tools/list').isPublic).toBe(true);
    expect(views.of(endpoint, principalOf('x', 'role')).table('tools/list').isPublic).toBe(false);
    upstreams.set('b', { tools: ['t', 'u'], isPublic: true, definition: { tools: { deny: ['u'] } } });
    expect(now().table('tools/list')).toMatchObject({ isPublic: true, entries: [{}, {}] });
    upstreams.allow((_principal, server) => server === 'a');
    expect(now().table('tools/list').isPublic).toBe(false);
    upstreams.allow((_principal, server, tool) => server === 'a' || tool === undefined);
    expect(now().table('tools/list').isPublic).toBe(false);
  });

  test('shares its lists with views that show the same items', () => {
    const { views } = make({ a: { tools: ['t'] } });
    const [one, other] = ['x', 'y'].map((id) => views.of(endpoint, principalOf(id)).table('tools/list'));
    expect(one).toBe(other);
  });
});
