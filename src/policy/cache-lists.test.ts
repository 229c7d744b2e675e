import { describe, expect, test } from 'vitest';
import { fakePrincipal } from '../../test/fakes/policy-call.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { type CachePlan, listCachePlan, ResponseCache } from './cache.js';
import { listQuestion } from './cache-stage.js';
import type { Item, Operation } from './operation.js';

type List = Pick<Operation, 'server' | 'method' | 'uri' | 'principal'>;
type Lists = ResponseCache<readonly Item[]>;

const item = (key: string, text = `{"name":"${key}"}`): Item => ({ key, raw: Buffer.from(text) });
const question = (part: Partial<List> = {}) =>
  listQuestion({ server: 'files', method: 'tools/list', uri: '', principal: fakePrincipal('ann', 'dev'), ...part });
const own = { ttlMs: 1_000, isPublic: false };
const shared = { ttlMs: 1_000, isPublic: true };

function open(plan: Partial<CachePlan<readonly Item[]>> = {}) {
  const clock = new FakeClock();
  const cache = new ResponseCache(clock, { ...listCachePlan, ...plan });
  const put = (part: Partial<List>, items: Item[], hint = own) => {
    const asked = question(part);
    return cache.put(asked, items, hint, cache.epochOf(asked.server, asked.subject));
  };
  const keys = (part: Partial<List> = {}) => cache.get(question(part))?.map(({ key }) => key);
  return { clock, cache, put, keys };
}

const read = (uri: string) => ({ method: 'resources/read', uri }) as const;

describe('a cached list', () => {
  test('is returned until its lifetime, counted from its arrival, has passed', () => {
    const { clock, cache, keys } = open();
    const epoch = cache.epochOf('files', 'tools/list');
    clock.advance(5_000);
    cache.put(question(), [item('a'), item('b')], own, epoch);
    clock.advance(999);
    expect(keys()).toEqual(['a', 'b']);
    clock.advance(1);
    expect([keys(), cache.stats().entries, cache.stats().bytes]).toEqual([undefined, 0, 0]);
  });

  test.each([0, -1, Number.NaN])('with a lifetime of %s is not cached', (ttlMs) => {
    const { put, cache } = open();
    expect([put({}, [item('a')], { ttlMs, isPublic: true }), cache.stats().entries]).toEqual([false, 0]);
  });

  test('is cached for a day at most', () => {
    const { clock, put, keys } = open();
    put({}, [item('a')], { ttlMs: Number.MAX_SAFE_INTEGER, isPublic: false });
    clock.advance(24 * 3_600_000 - 1);
    expect(keys()).toEqual(['a']);
    clock.advance(1);
    expect(keys()).toBeUndefined();
  });

  test('may be empty', () => {
    const { put, keys } = open();
    put({}, []);
    expect(keys()).toEqual([]);
  });

  test('cannot be changed', () => {
    const { put, cache } = open();
    const mine = item('a', '{"name":"a"}');
    put({}, [mine]);
    mine.raw.fill(0);
    cache.get(question())?.[0]?.raw.fill(1);
    expect(cache.get(question())?.[0]?.raw.toString()).toBe('{"name":"a"}');
  });

  test('belongs to one principal in one role, one server and one question, unless it is public', () => {
    const { put, keys } = open();
    put({}, [item('mine')]);
    const others: Partial<List>[] = [
      { principal: fakePrincipal('bob', 'dev') },
      { principal: fakePrincipal('ann', 'admin') },
      { principal: fakePrincipal('ann') },
      { server: 'github' },
      { method: 'prompts/list' },
      { uri: 'a' },
    ];
    expect(others.map(keys)).toEqual(others.map(() => undefined));
    put({}, [item('everybody’s')], shared);
    expect(others.map(keys)).toEqual(others.map(({ principal }) => (principal ? ['everybody’s'] : undefined)));
    expect(keys()).toEqual(['mine']);
  });
});

describe('a drop', () => {
  test('of one method leaves the others', () => {
    const { cache, put, keys } = open();
    put({}, [item('tool')]);
    put({ method: 'prompts/list' }, [item('prompt')]);
    cache.drop('files', 'tools/list');
    expect([keys(), keys({ method: 'prompts/list' })]).toEqual([undefined, ['prompt']]);
  });

  test('of a server drops all of its answers and no others', () => {
    const { cache, put, keys } = open();
    put({}, [item('a')]);
    put(read('file:///a'), [item('file:///a')]);
    put({ server: 'github' }, [item('b')]);
    cache.drop('files');
    expect([keys(), keys(read('file:///a')), keys({ server: 'github' })]).toEqual([undefined, undefined, ['b']]);
  });

  test('of a resource drops it and the resources that contain it', () => {
    const { cache, put, keys } = open();
    for (const uri of ['file:///a', 'file:///a/b', 'file:///c']) put(read(uri), [item(uri)]);
    cache.drop('files', 'resources/read', (uri) => 'file:///a/b'.startsWith(uri));
    expect(['file:///a', 'file:///a/b', 'file:///c'].map((uri) => keys(read(uri)))).toEqual([
      undefined,
      undefined,
      ['file:///c'],
    ]);
  });

  test.each<[string, (cache: Lists) => void]>([
    ['of the method', (cache) => cache.drop('files', 'resources/read')],
    ['of a resource', (cache) => cache.drop('files', 'resources/read', (uri) => uri === 'file:///a')],
    ['of the server', (cache) => cache.drop('files')],
    ['of everything', (cache) => cache.dropAll()],
    [
      'of more servers than are remembered',
      (cache) => {
        for (let i = 0; i <= 4_096; i++) cache.drop(`s${i}`);
      },
    ],
  ])('%s: an answer that was on its way is not cached', (_what, drop) => {
    const { cache, put, keys } = open();
    const asked = question(read('file:///a'));
    const epoch = cache.epochOf('files', 'resources/read');
    drop(cache);
    expect([cache.put(asked, [item('old')], own, epoch), keys(read('file:///a'))]).toEqual([false, undefined]);
    expect([put(read('file:///a'), [item('new')]), keys(read('file:///a'))]).toEqual([true, ['new']]);
  });

  test('of one method does not affect an answer of another that was on its way', () => {
    const { cache } = open();
    const epoch = cache.epochOf('files', 'tools/list');
    cache.drop('files', 'prompts/list');
    expect(cache.put(question(), [item('a')], own, epoch)).toBe(true);
  });
});

describe('bounds', () => {
  test('a resource of more than 1 MiB is not cached, a list of this size is', () => {
    const { put } = open();
    const large = item('x', 'x'.repeat(1024 * 1024 + 1));
    expect([put(read('u'), [large]), put({}, [large])]).toEqual([false, true]);
    expect(put({}, [item('x', 'x'.repeat(16 * 1024 * 1024 + 1))])).toBe(false);
  });

  test('all entries together stay within the limit: expired entries are removed first, then the oldest', () => {
    const { clock, cache, put, keys } = open({ bytesMax: 5_000 });
    const filled = item('x', 'x'.repeat(1_000));
    put({ server: 'a' }, [filled], { ttlMs: 10_000, isPublic: true });
    put({ server: 'b' }, [filled], { ttlMs: 10, isPublic: true });
    put({ server: 'c' }, [filled], { ttlMs: 10_000, isPublic: true });
    clock.advance(10);
    put({ server: 'd' }, [filled], { ttlMs: 10_000, isPublic: true });
    expect(['a', 'b', 'c', 'd'].map((server) => keys({ server })?.length)).toEqual([1, undefined, 1, 1]);
    put({ server: 'e' }, [filled], { ttlMs: 10_000, isPublic: true });
    expect(['a', 'c', 'd', 'e'].map((server) => keys({ server })?.length)).toEqual([undefined, 1, 1, 1]);
    expect(cache.stats().bytes).toBeLessThanOrEqual(5_000);
  });

  test('many empty lists are bounded too', () => {
    const { cache, put } = open({ bytesMax: 5_120 });
    for (let i = 0; i < 100; i++) put({ server: `s${i}` }, []);
    expect(cache.stats().entries).toBe(10);
  });

  test('each method has its own bound, and repeating a request evicts no other entry', () => {
    const { cache, put, keys } = open({ entriesPerSubjectMax: 3 });
    for (const uri of ['a', 'b', 'c']) put(read(uri), [item(uri)]);
    put(read('b'), [item('b')]);
    expect(cache.stats().entries).toBe(3);
    put(read('d'), [item('d')]);
    expect(['a', 'b', 'c', 'd'].map((uri) => keys(read(uri)))).toEqual([undefined, ['b'], ['c'], ['d']]);
  });

  test('a dropped answer costs no memory', () => {
    const { cache, put } = open();
    for (let i = 0; i < 10; i++) put({ server: `s${i}` }, [item('a')]);
    cache.dropAll();
    expect([cache.stats().entries, cache.stats().bytes]).toEqual([0, 0]);
  });
});
