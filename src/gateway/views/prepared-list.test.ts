import { describe, expect, test } from 'vitest';
import { fakeClient, principalOf } from '../../../test/fakes/fake-exchange.js';
import { type FakeServer, FakeUpstreams } from '../../../test/fakes/fake-upstreams.js';
import { PreparedLists } from './prepared-list.js';
import { Views } from './views.js';

const { endpoint } = fakeClient();

function make(servers: Record<string, FakeServer>) {
  const upstreams = new FakeUpstreams(servers);
  const views = new Views(upstreams);
  upstreams.onKnownChanged(() => views.changed());
  const lists = new PreparedLists();
  const page = (id = 'a', era: 'legacy' | 'modern' = 'legacy', number = 0) => {
    const principal = principalOf(id);
    const view = views.of(endpoint, principal);
    const states = views.statesOf(endpoint, principal);
    return lists.page({ view, states, method: 'tools/list', era, serverInfo: '{}', mayBePublic: false, page: number });
  };
  return { upstreams, lists, page };
}

describe('a prepared page', () => {
  test('is made once for all who see the same', () => {
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

  test('is found again when a server is back in a state it was in', () => {
    const { lists, page, upstreams } = make({ s: { tools: ['a'] } });
    const ready = page();
    upstreams.setState('s', 'parked');
    expect(page().toString()).toBe('{"tools":[{"_meta":{"hostler/state":"parked"},"name":"s__a"}]}');
    upstreams.setState('s', 'ready');
    expect(page()).toBe(ready);
    expect(lists.made).toBe(2);
  });

  test('says the state of its own server, whoever else was in that state when others listed the same', () => {
    const nothing = { tools: [] };
    const { page, upstreams } = make({ x: { ...nothing, state: 'parked' }, y: { tools: ['a'] }, z: nothing });
    upstreams.allow(({ id }, server) => server === 'y' || server === (id === 'p1' ? 'x' : 'z'));
    expect(page('p1').toString()).toBe('{"tools":[{"name":"y__a"}]}');
    upstreams.setState('y', 'parked');
    expect(page('p2').toString()).toBe('{"tools":[{"_meta":{"hostler/state":"parked"},"name":"y__a"}]}');
  });

  test('puts the state beside what a tool says of itself, and leaves a _meta that is none alone', () => {
    const tools = ['{"name":"a","_meta":{"x":1.0,"hostler/state":"mine"}}', '{"name":"b","_meta":7}'];
    const { page } = make({ s: { tools, state: 'parked' } });
    expect(page().toString()).toBe(
      '{"tools":[{"name":"s__a","_meta":{"hostler/state":"parked","x":1.0}},{"name":"s__b","_meta":7}]}',
    );
  });

  test('puts the state into an item however it begins, and beside a _meta in disguise', () => {
    const tools = ['{"name":"a"}', '{"x":1,"name":"b"}', '{ "name":"c"}', '{"name":"d","\\u005fmeta":{"x":1}}'];
    const { page } = make({ s: { tools, state: 'parked' } });
    const state = '"hostler/state":"parked"';
    expect(page().toString()).toBe(
      `{"tools":[{"_meta":{${state}},"name":"s__a"},{"_meta":{${state}},"x":1,"name":"s__b"},` +
        `{"_meta":{${state}}, "name":"s__c"},{"name":"s__d","\\u005fmeta":{${state},"x":1}}]}`,
    );
  });

  test('finds the name wherever it stands, also in disguise, and in no nested object', () => {
    const tools = ['{"x":{"name":"no"},"n\\u0061me":"a","z":[{"name":"no"}]}'];
    const { page } = make({ s: { tools } });
    expect(page().toString()).toBe(`{"tools":[${tools[0]?.replace('"a"', '"s__a"')}]}`);
  });

  test('leaves out what nobody could call: no name, two names, and the second of one name', () => {
    const { page } = make({ s: { tools: ['{"x":1}', '{"name":"a","name":"b"}', 'c', '{"name":"c","second":true}'] } });
    expect(page().toString()).toBe('{"tools":[{"name":"s__c"}]}');
  });

  test('holds at most 2 MiB, but never nothing', () => {
    const large = (name: string) => JSON.stringify({ name, description: 'x'.repeat(900 * 1024) });
    const { page } = make({ s: { tools: ['a', 'b', 'c', 'd', 'e'].map(large) } });
    const sizes = [0, 1, 2].map((number) => JSON.parse(page('p', 'legacy', number).toString()).tools.length);
    expect(sizes).toEqual([2, 2, 1]);
  });

  test('is forgotten when there are more than 64', () => {
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
