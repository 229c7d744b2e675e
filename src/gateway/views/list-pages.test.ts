import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { fakeClient, principalOf } from '../../../test/fakes/fake-exchange.js';
import { type FakeServer, FakeUpstreams } from '../../../test/fakes/fake-upstreams.js';
import { eraOf } from '../eras/eras.js';
import { ListPages, readCursor } from './list-pages.js';
import type { Position } from './table.js';
import { Views } from './views.js';

const { endpoint } = fakeClient();

function make(servers: Record<string, FakeServer>) {
  const upstreams = new FakeUpstreams(servers);
  const views = new Views(upstreams);
  upstreams.onKnownChanged((server) => views.changed(server));
  const lists = new ListPages();
  const page = (id = 'a', era: 'legacy' | 'modern' = 'legacy', after?: Position) => {
    const principal = principalOf(id);
    const view = views.of(endpoint, principal);
    const states = views.statesOf(endpoint, principal);
    return lists.page({ view, states, method: 'tools/list', trailer: eraOf(era).listMembers('{}', 0, false), after });
  };
  return { upstreams, lists, page };
}

describe('a page', () => {
  test('is built once for all principals that see the same list', () => {
    const { lists, page, upstreams } = make({ s: { tools: ['a', 'b'] } });
    expect(page('p1')).toBe(page('p2'));
    expect(lists.made).toBe(1);
    page('p1', 'modern');
    expect(lists.made).toBe(2);
    upstreams.allow(({ id }, _server, tool) => id !== 'p2' || tool !== 'b');
    page('p1');
    expect(lists.made).toBe(2);
    expect(page('p2').toString()).toBe('{"tools":[{"name":"s__a"}]}');
    expect(lists.made).toBe(3);
  });

  test('is reused from the cache when a server returns to an earlier state', () => {
    const { lists, page, upstreams } = make({ s: { tools: ['a'] } });
    const ready = page();
    upstreams.setState('s', 'parked');
    expect(page().toString()).toBe('{"tools":[{"_meta":{"hostler/state":"parked"},"name":"s__a"}]}');
    upstreams.setState('s', 'ready');
    expect(page()).toBe(ready);
    expect(lists.made).toBe(2);
  });

  test('shows the state of the server of each tool, even if another server had the same state in an earlier page', () => {
    const nothing = { tools: [] };
    const { page, upstreams } = make({ x: { ...nothing, state: 'parked' }, y: { tools: ['a'] }, z: nothing });
    upstreams.allow(({ id }, server) => server === 'y' || server === (id === 'p1' ? 'x' : 'z'));
    expect(page('p1').toString()).toBe('{"tools":[{"name":"y__a"}]}');
    upstreams.setState('y', 'parked');
    expect(page('p2').toString()).toBe('{"tools":[{"_meta":{"hostler/state":"parked"},"name":"y__a"}]}');
  });

  test('adds the state to the _meta of a tool, but does not change a _meta that is not an object', () => {
    const tools = ['{"name":"a","_meta":{"x":1.0,"hostler/state":"mine"}}', '{"name":"b","_meta":7}'];
    const { page } = make({ s: { tools, state: 'parked' } });
    expect(page().toString()).toBe(
      '{"tools":[{"name":"s__a","_meta":{"hostler/state":"parked","x":1.0}},{"name":"s__b","_meta":7}]}',
    );
  });

  test('has the state in an item with any first member, and in a _meta key with escapes', () => {
    const tools = ['{"name":"a"}', '{"x":1,"name":"b"}', '{ "name":"c"}', '{"name":"d","\\u005fmeta":{"x":1}}'];
    const { page } = make({ s: { tools, state: 'parked' } });
    const state = '"hostler/state":"parked"';
    expect(page().toString()).toBe(
      `{"tools":[{"_meta":{${state}},"name":"s__a"},{"_meta":{${state}},"x":1,"name":"s__b"},` +
        `{"_meta":{${state}}, "name":"s__c"},{"name":"s__d","\\u005fmeta":{${state},"x":1}}]}`,
    );
  });

  test('finds the name at any position, also with escapes, but not in a nested object', () => {
    const tools = ['{"x":{"name":"no"},"n\\u0061me":"a","z":[{"name":"no"}]}'];
    const { page } = make({ s: { tools } });
    expect(page().toString()).toBe(`{"tools":[${tools[0]?.replace('"a"', '"s__a"')}]}`);
  });

  test('leaves out items that cannot be called: items without a name or with two names, and a second item with the same name', () => {
    const { page } = make({ s: { tools: ['{"x":1}', '{"name":"a","name":"b"}', 'c', '{"name":"c","second":true}'] } });
    expect(page().toString()).toBe('{"tools":[{"name":"s__c"}]}');
  });

  test('holds at most 2 MiB, but at least one item', () => {
    const large = (name: string) => JSON.stringify({ name, description: 'x'.repeat(900 * 1024) });
    const { page } = make({ s: { tools: ['a', 'b', 'c', 'd', 'e'].map(large) } });
    const read = (after?: Position) => JSON.parse(page('p', 'legacy', after).toString());
    const sizes: number[] = [];
    for (let next: Position | undefined, isFirst = true; isFirst || next; isFirst = false) {
      const { tools, nextCursor } = read(next);
      sizes.push(tools.length);
      next = nextCursor && readCursor('tools/list', nextCursor);
    }
    expect(sizes).toEqual([2, 2, 1]);
  });

  test('is evicted as the oldest when more than 64 pages are cached', () => {
    const { lists, page, upstreams } = make({ s: { tools: ['a'] } });
    upstreams.set('s', { tools: Array.from({ length: 80 }, (_, i) => `t${i}`) });
    upstreams.allow(({ id }, _server, tool) => tool === undefined || tool === `t${id}`);
    for (let i = 0; i < 65; i++) page(`${i}`);
    expect(lists.made).toBe(65);
    page('64');
    page('1');
    expect(lists.made).toBe(65);
    page('0');
    expect(lists.made).toBe(66);
  });
});

describe('reading a list page by page', () => {
  const names = (page: { tools: { name: string }[] }) => page.tools.map(({ name }) => name);

  test('skips and repeats no unchanged item, whatever changes between the pages', () => {
    const toolOf = fc.nat({ max: 5_999 }).map((i) => `t${i}`);
    const change = fc.record({
      server: fc.constantFrom('a', 'b', 'c'),
      removed: fc.uniqueArray(toolOf, { maxLength: 400 }),
      added: fc.uniqueArray(toolOf, { maxLength: 400 }),
      isReversed: fc.boolean(),
      isGone: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(change, { minLength: 1, maxLength: 6 }), (changes) => {
        const tools = new Map(['a', 'b', 'c'].map((server) => [server, many(1_700)]));
        const { page, upstreams } = make(
          Object.fromEntries([...tools].map(([server, own]) => [server, { tools: own }])),
        );
        const listed = () => [...tools].flatMap(([server, own]) => own.map((tool) => `${server}__${tool}`));
        const staying = new Set(listed());
        const seen: string[] = [];
        let pages = 0;
        for (let next: Position | undefined, isFirst = true; isFirst || next; isFirst = false) {
          const read = JSON.parse(page('p', 'legacy', next).toString());
          seen.push(...names(read));
          next = read.nextCursor && readCursor('tools/list', read.nextCursor);
          const each = changes[pages++];
          if (each) {
            const own = (tools.get(each.server) ?? []).filter((tool) => !each.removed.includes(tool));
            const changed = [...new Set([...each.added, ...own])];
            tools.set(each.server, each.isReversed ? changed.reverse() : changed);
            if (each.isGone) tools.delete(each.server);
            if (each.isGone) upstreams.remove(each.server);
            else upstreams.set(each.server, { tools: changed });
            const now = new Set(listed());
            for (const name of staying) if (!now.has(name)) staying.delete(name);
          }
          expect(pages).toBeLessThan(12);
        }
        expect(seen.filter((name) => staying.has(name)).sort()).toEqual([...staying].sort());
      }),
      { seed: 14, numRuns: 10 },
    );
  });

  test('continues after the last item even if that is gone, and ends when nothing is left', () => {
    const { page, upstreams } = make({ s: { tools: many(2_001) } });
    const first = JSON.parse(page().toString());
    const after = readCursor('tools/list', first.nextCursor) as Position;
    expect(after).toEqual({ server: 's', key: 't998' });
    upstreams.set('s', { tools: many(2_001).filter((tool) => tool !== 't998') });
    expect(names(JSON.parse(page('a', 'legacy', after).toString()))).toEqual(['s__t999']);
    upstreams.set('s', { tools: ['a'] });
    expect(page('a', 'legacy', after).toString()).toBe('{"tools":[]}');
  });

  test.each([
    ['of another list', Buffer.from('["prompts/list","s","t"]').toString('base64url')],
    ['whose key is not a text', Buffer.from('["tools/list","s",7]').toString('base64url')],
    ['with an additional element', Buffer.from('["tools/list","s","t",1]').toString('base64url')],
    ['with base64 padding', `${Buffer.from('["tools/list","s","t"]').toString('base64url')}=`],
    ['that is empty', ''],
    ['that is not base64url of a list', 'null'],
  ])('refuses a cursor %s', (_title, cursor) => {
    expect(readCursor('tools/list', cursor)).toBeUndefined();
  });

  test('accepts its own cursors for any name', () => {
    const key = 'ü\ud800\0"';
    const { page } = make({ s: { tools: [JSON.stringify({ name: key }), ...many(2_000)] } });
    let last: Position | undefined;
    for (let next = JSON.parse(page().toString()).nextCursor; next; ) {
      last = readCursor('tools/list', next);
      next = JSON.parse(page('a', 'legacy', last).toString()).nextCursor;
    }
    expect(last).toBeDefined();
  });
});

const many = (count: number) => Array.from({ length: count }, (_, i) => `t${i}`);

test('X18 a cursor above its bound is refused without being parsed', () => {
  const nested = Buffer.from(`${'['.repeat(30_000)}${']'.repeat(30_000)}`).toString('base64url');
  expect(nested.length).toBeGreaterThan(65_536);
  expect(readCursor('tools/list', nested)).toBeUndefined();
  const long = Buffer.from(JSON.stringify(['tools/list', 'fs', 'x'.repeat(60_000)])).toString('base64url');
  expect(readCursor('tools/list', long)).toBeUndefined();
  const longest = Buffer.from(JSON.stringify(['tools/list', 'fs', 'x'.repeat(40_000)])).toString('base64url');
  expect(readCursor('tools/list', longest)?.key).toHaveLength(40_000);
});

test('X18 cursors that a client made up evict no page of other clients', () => {
  const { lists, page } = make({ s: { tools: many(2_001) } });
  const first = page();
  const next = readCursor('tools/list', JSON.parse(first.toString()).nextCursor);
  const second = page('a', 'legacy', next);
  for (let i = 0; i < 200; i++) page('b', 'legacy', { server: 's', key: `t${i}` });
  const { made } = lists;
  expect([page() === first, page('a', 'legacy', next) === second, lists.made - made]).toEqual([true, true, 0]);
});

test('X18 a list of one page is cached at most twice, whatever cursors its clients send', () => {
  const { lists, page } = make({ s: { tools: many(100) } });
  const whole = page();
  for (let i = 0; i < 100; i++) page('b', 'legacy', { server: 's', key: `t${i}` });
  const before = page('b', 'legacy', { server: 'a', key: '' });
  const { made } = lists;
  expect([page() === whole, page('b', 'legacy', { server: 'b', key: '' }) === before, lists.made - made]).toEqual([
    true,
    true,
    0,
  ]);
});
