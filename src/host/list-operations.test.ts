import { describe, expect, test } from 'vitest';
import { fakeOperations } from '../../test/fakes/operations.js';
import { failureOf, fakePrincipal } from '../../test/fakes/policy-call.js';
import { Listings } from '../catalog/listings.js';
import type { Listing } from '../catalog/store/listings-table.js';
import { parseServerDefinition } from '../config/server-definition.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import type { Guard } from '../policy/allowlist.js';
import { listCachePlan, ResponseCache } from '../policy/cache.js';
import { memoryPinStore } from '../policy/pin-records.js';
import { Pins } from '../policy/pins.js';
import { CallBudgets, type RateLimit } from '../policy/rate-limit.js';
import { ServerThrottle } from '../policy/throttles.js';
import type { ListedItem, ServerList } from '../session/lists.js';
import type { Session } from '../session/session.js';
import type { Supervisor } from '../supervisor/supervisor.js';
import { ListOperations } from './list-operations.js';
import { ManagedServer } from './managed-server.js';

const item = (key: string, more = ''): ListedItem => ({ key, raw: Buffer.from(`{"name":"${key}"${more}}`) });
const listOf = (names: string[], part: Partial<ServerList> = {}): ServerList => ({
  items: names.map((name) => item(name)),
  pages: 1,
  ttlMs: 0,
  cacheScope: 'private',
  ...part,
});
const ada = { principal: fakePrincipal('ada') };
const bob = { principal: fakePrincipal('bob') };

function open(part: Record<string, unknown> = {}) {
  const clock = new FakeClock();
  const saved: string[] = [];
  const dropped: string[] = [];
  let guards: readonly Guard[] = [];
  /** The answers of the server in order; the last one is repeated. */
  const answers: (() => ServerList | Promise<ServerList>)[] = [];
  const asked: string[] = [];
  const next = () => (answers.length > 1 ? answers.shift() : answers[0]) as () => ServerList | Promise<ServerList>;
  const session = {
    server: 'a',
    list: async (method: string) => {
      asked.push(method);
      return next()();
    },
    request: async (method: string, params: string) => {
      asked.push(`${method} ${params}`);
      const [first] = (await next()()).items;
      return { kind: 'result', bytes: first?.raw };
    },
    lastMessageAtMs: 0,
    probe: async () => 'alive',
  } as unknown as Session;
  const current = { connection: session, run: 1 };
  const supervisor = {
    ready: () => undefined,
    acquire: async () => current,
    current,
  } as unknown as Supervisor<Session>;
  const held = { now: 0, max: 0 };
  const hold = {
    enter: () => {
      held.max = Math.max(held.max, ++held.now);
    },
    leave: () => {
      held.now--;
    },
  };
  const managedOf = (more: Record<string, unknown>) => {
    const definition = parseServerDefinition('a', { command: 'a', breaker: { threshold: 1 }, ...more }, true);
    return new ManagedServer(definition, supervisor, hold, clock);
  };
  const servers = new Map([['a', managedOf(part)]]);
  const pins = new Pins({ store: memoryPinStore() });
  const rateLimits = new Map<string, RateLimit>();
  const budgets = new CallBudgets(clock, () => ({ principals: rateLimits, roles: new Map() }));
  const toolsOf = ({ lists }: Listing) => keysOf(lists.get('tools/list')?.items ?? []);
  const known = new Listings({
    findServer: (name) => servers.get(name),
    pins,
    store: {
      isStored: () => true,
      load: () => ({
        facts: undefined,
        lists: new Map([['tools/list', { items: [item('recalled')], ttlMs: 0, isPublic: false }]]),
      }),
      save: (_name, _print, stored) => saved.push(toolsOf(stored)),
    },
    onProblem: (error) => expect.unreachable(String(error)),
  });
  const serverThrottle = new ServerThrottle(clock);
  const serverOf = (name: string) => {
    const managed = servers.get(name);
    if (!managed) throw new HostError('server_not_found', `no server named '${name}'`);
    return managed;
  };
  const lists = new ResponseCache(clock, listCachePlan);
  const shared = { clock, serverOf, findServer: (name: string) => servers.get(name), guards: () => guards, lists };
  const operations = fakeOperations({
    ...shared,
    budgets,
    serverThrottle,
    exchange: (...exchange) => listOperations.exchange(...exchange),
  });
  const listOperations: ListOperations = new ListOperations({
    ...shared,
    list: (request) => operations.list(request),
    pins,
    budgets,
    known,
    clean: (text) => text,
    onToolsChanged: (name) => dropped.push(name),
    onPins: () => {},
    onDenied: () => {},
  });
  const statusOf = (tool: string) => pins.statusOf('a', tool);
  const answer = (...lists: (ServerList | (() => ServerList | Promise<ServerList>))[]) => {
    answers.splice(0, answers.length, ...lists.map((list) => (typeof list === 'function' ? list : () => list)));
  };
  const guard = (...given: Guard[]) => {
    guards = given;
  };
  const replace = (more: Record<string, unknown>) => servers.set('a', managedOf(more));
  return {
    clock,
    listOperations,
    serverThrottle,
    servers,
    answer,
    asked,
    saved,
    dropped,
    guard,
    replace,
    held,
    rateLimits,
    statusOf,
  };
}

const keysOf = (items: readonly { readonly key: string }[]) => items.map(({ key }) => key).join();
const namesOf = async (tools: Promise<{ name: string }[]>) => (await tools).map(({ name }) => name).join();

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

/** A list that arrives when the test says so. */
function later(list: ServerList) {
  let come: () => void = () => {};
  const coming = new Promise<ServerList>((resolve) => {
    come = () => resolve(list);
  });
  return { come, list: () => coming };
}

describe('a list', () => {
  test('is read once while it is fresh, and once per principal unless it is public', async () => {
    const { listOperations, answer, asked, clock } = open();
    answer(listOf(['t'], { ttlMs: 1_000 }));
    for (const who of [ada, ada, bob, ada]) expect(await namesOf(listOperations.tools('a', who))).toBe('t');
    expect(asked.length).toBe(2);
    clock.advance(1_000);
    answer(listOf(['t'], { ttlMs: 1_000, cacheScope: 'public' }));
    for (const who of [ada, bob, ada]) await listOperations.tools('a', who);
    expect(asked.length).toBe(3);
  });

  test('without a lifetime is read each time, and once for concurrent equal callers', async () => {
    const { listOperations, answer, asked, held } = open();
    const slow = later(listOf(['t']));
    answer(slow.list);
    const all = Array.from({ length: 50 }, () => listOperations.tools('a', ada));
    const other = listOperations.tools('a', bob);
    slow.come();
    const lists = await Promise.all([...all, other]);
    expect(asked.length).toBe(2);
    expect(held).toEqual({ now: 0, max: 2 });
    // No caller holds the bytes of another.
    lists[0]?.[0]?.raw.fill(0);
    expect(lists[1]?.[0]?.raw.toString()).toBe('{"name":"t"}');
    await listOperations.tools('a', ada);
    expect(asked.length).toBe(3);
  });

  test('is not cached with cache: off', async () => {
    const { listOperations, answer, asked } = open({ cache: 'off' });
    answer(listOf(['t'], { ttlMs: 1_000, cacheScope: 'public' }));
    await listOperations.tools('a');
    await listOperations.tools('a');
    expect(asked.length).toBe(2);
  });

  test.each([
    ['tools/list', 'notifications/tools/list_changed'],
    ['prompts/list', 'notifications/prompts/list_changed'],
    ['resources/list', 'notifications/resources/list_changed'],
    ['resources/templates/list', 'notifications/resources/list_changed'],
  ] as const)('%s is read again after %s, and after nothing else', async (method, notification) => {
    const { listOperations, answer, asked } = open();
    answer(listOf(['t'], { ttlMs: 1_000 }));
    const kinds = ['tools', 'prompts', 'resources'].map((kind) => `notifications/${kind}/list_changed`);
    await listOperations.list('a', method);
    for (const other of [...kinds, 'notifications/resources/updated'])
      if (other !== notification) listOperations.onNotification('a', other, undefined);
    await listOperations.list('a', method);
    expect(asked.length).toBe(1);
    listOperations.onNotification('a', notification, undefined);
    await listOperations.list('a', method);
    expect(asked.length).toBe(2);
  });

  test.each<[string, (listOperations: ListOperations) => void]>([
    [
      'the server announces a change',
      (listOperations) => listOperations.onNotification('a', 'notifications/tools/list_changed', undefined),
    ],
    ['the server restarts', (listOperations) => listOperations.drop('a')],
    ['others may see it', (listOperations) => listOperations.dropAll()],
  ])('that is being read while %s is not cached, and the next caller reads again', async (_what, happen) => {
    const { listOperations, answer, asked } = open();
    const slow = later(listOf(['old'], { ttlMs: 1_000 }));
    answer(slow.list, listOf(['new'], { ttlMs: 1_000 }));
    const first = listOperations.tools('a');
    await settle();
    expect(asked.length).toBe(1);
    happen(listOperations);
    const second = listOperations.tools('a');
    slow.come();
    expect([await namesOf(first), await namesOf(second), await namesOf(listOperations.tools('a'))]).toEqual([
      'old',
      'new',
      'new',
    ]);
    expect(asked.length).toBe(2);
  });
});

test.each(['tools/call', 'toString', '', undefined])(
  '%j is not a list method, and no server gets it',
  async (method) => {
    const { listOperations, asked } = open();
    expect((await failureOf(listOperations.list('a', method as 'tools/list'))).details.field).toBe('method');
    expect(asked).toEqual([]);
  },
);

describe('a resource', () => {
  const content = (text: string, hint = ''): ServerList => ({
    ...listOf([]),
    items: [{ key: '', raw: Buffer.from(`{"contents":[{"text":"${text}"}]${hint}}`) }],
  });

  test('is read once while it is fresh, until a change is announced', async () => {
    const { listOperations, answer, asked } = open();
    answer(content('one', ',"ttlMs":1000'));
    for (let i = 0; i < 2; i++)
      expect((await listOperations.read('a', 'file:///x')).json()).toMatchObject({ contents: [{ text: 'one' }] });
    expect(asked).toEqual(['resources/read {"uri":"file:///x"}']);
    listOperations.onNotification('a', 'notifications/resources/updated', Buffer.from('{"uri":"file:///y"}'));
    await listOperations.read('a', 'file:///x');
    expect(asked.length).toBe(1);
    listOperations.onNotification('a', 'notifications/resources/updated', Buffer.from('{"uri":"file:///x"}'));
    await listOperations.read('a', 'file:///x');
    expect(asked.length).toBe(2);
  });

  test.each(['', ',"ttlMs":0', ',"ttlMs":"5"', ',"ttlMs":1000,"resultType":"input_required"'])(
    'with the hint "%s" is not kept',
    async (hint) => {
      const { listOperations, answer, asked } = open();
      answer(content('one', hint));
      await listOperations.read('a', 'file:///x');
      await listOperations.read('a', 'file:///x');
      expect(asked.length).toBe(2);
    },
  );

  test('needs a valid URI, and more than the right to see the server', async () => {
    const { listOperations, answer, asked, guard } = open();
    answer(content('one'));
    guard(({ action }) => (action === 'list' ? { allow: true } : { allow: false, reason: 'no' }));
    expect((await failureOf(listOperations.read('a', 'file:///x'))).code).toBe('denied');
    guard();
    for (const uri of ['', 'x'.repeat(8_193), 5 as unknown as string])
      expect((await failureOf(listOperations.read('a', uri))).code).toBe('invalid_arguments');
    expect(asked).toEqual([]);
  });
});

describe('D-17 policy', () => {
  test('a tool that may not be called is not listed, neither fresh nor cached', async () => {
    const { listOperations, answer, asked, guard } = open();
    answer(listOf(['ok', 'secret'], { ttlMs: 1_000, cacheScope: 'public' }));
    guard(({ tool, principal }) =>
      tool === 'secret' && principal.id === 'bob' ? { allow: false, reason: 'no' } : { allow: true },
    );
    const lists = [listOperations.tools('a', bob), listOperations.tools('a', ada)];
    expect(await Promise.all(lists.map(namesOf))).toEqual(['ok', 'ok,secret']);
    expect(await namesOf(listOperations.tools('a', bob))).toBe('ok');
    expect(asked.length).toBe(2);
    expect(keysOf(await listOperations.list('a', 'tools/list', bob))).toBe('ok');
  });

  test('a guard that denies the server is asked before anything else', async () => {
    const { listOperations, guard } = open();
    guard(() => ({ allow: false, reason: 'no' }));
    expect((await failureOf(listOperations.tools('nobody'))).code).toBe('denied');
    guard();
    expect((await failureOf(listOperations.tools('nobody'))).code).toBe('server_not_found');
  });

  test('an open breaker refuses an uncached list, and a list that succeeds as the trial closes it', async () => {
    const { listOperations, answer, asked, servers, clock } = open();
    answer(() => Promise.reject(new HostError('transport', 'gone')));
    expect((await failureOf(listOperations.tools('a'))).code).toBe('transport');
    answer(listOf(['t']));
    expect((await failureOf(listOperations.tools('a'))).code).toBe('circuit_open');
    expect(asked.length).toBe(1);
    clock.advance(30_000);
    expect(await namesOf(listOperations.tools('a'))).toBe('t');
    expect(servers.get('a')?.breaker.circuit(clock.nowMs())).toBe('closed');
  });
});

describe('D-17 a read passes the same checks as a call', () => {
  const content = { ...listOf([]), items: [{ key: '', raw: Buffer.from('{"contents":[]}') }] };

  test('a resource is charged, cached or not, and refused beyond the budget; a list is never charged', async () => {
    const { listOperations, answer, asked, rateLimits } = open();
    rateLimits.set('ada', { calls: 2, windowMs: 1_000 });
    answer({ ...content, items: [{ key: '', raw: Buffer.from('{"contents":[],"ttlMs":1000}') }] });
    await listOperations.read('a', 'x:1', ada);
    await listOperations.read('a', 'x:1', ada);
    const error = await failureOf(listOperations.read('a', 'x:2', ada));
    expect([error.code, error.details]).toMatchObject(['budget_exceeded', { limit: 2, actual: 3 }]);
    expect(error.details).not.toHaveProperty('tool');
    await listOperations.read('a', 'x:2', bob);
    expect(asked.length).toBe(2);
    answer(listOf(['t']));
    await listOperations.tools('a', ada);
  });

  test('reads wait for a slot of the server, equal ones for one slot, and leave the queue when no caller waits', async () => {
    const { listOperations, answer, asked, servers } = open({ concurrency: 1 });
    const slow = later(content);
    answer(slow.list, content);
    const first = listOperations.read('a', 'x:1', ada);
    await settle();
    const others = ['x:2', 'x:2', 'x:3'].map((uri) => listOperations.read('a', uri, ada));
    const left = new AbortController();
    const leaving = failureOf(listOperations.list('a', 'prompts/list', { ...bob, signal: left.signal }));
    await settle();
    expect([asked, servers.get('a')?.load]).toMatchObject([{ length: 1 }, { running: 1, waiting: 3 }]);
    left.abort();
    expect((await leaving).code).toBe('cancelled');
    slow.come();
    await Promise.all([first, ...others]);
    expect([asked.length, servers.get('a')?.load]).toMatchObject([3, { running: 0, waiting: 0 }]);
  });

  test('a failed read releases its slot', async () => {
    const { listOperations, answer, servers } = open({ concurrency: 1, breaker: { threshold: 100 } });
    for (const fail of [
      () => Promise.reject(new HostError('transport', 'gone')),
      () => Promise.reject(new Error('bug')),
    ]) {
      answer(fail);
      await expect(listOperations.read('a', 'x:1', ada)).rejects.toThrow();
    }
    expect(servers.get('a')?.load).toMatchObject({ running: 0, waiting: 0 });
  });

  test.each([Number.NaN, '5000', {}, true])(
    'a deadline of %j is refused before anything happens',
    async (deadlineMs) => {
      const { listOperations, asked } = open();
      const options = { deadlineMs: deadlineMs as number };
      for (const reading of [listOperations.read('a', 'x:1', options), listOperations.tools('a', options)]) {
        const error = await failureOf(reading);
        expect([error.code, error.details.field]).toEqual(['invalid_request', 'deadlineMs']);
      }
      expect(asked).toEqual([]);
    },
  );

  test('a deadline in the past is a timeout, an infinite one is no deadline', async () => {
    const { listOperations, answer, asked, clock } = open();
    answer(content);
    for (const deadlineMs of [-1, 0, Number.NEGATIVE_INFINITY])
      expect((await failureOf(listOperations.read('a', 'x:1', { deadlineMs }))).code).toBe('timeout');
    expect(asked).toEqual([]);
    await listOperations.read('a', 'x:1', { deadlineMs: Number.POSITIVE_INFINITY });
    expect(clock.pendingTimers).toBe(0);
  });
});

test('D-24 the server name inside a tool is ignored', async () => {
  const { listOperations, answer } = open();
  answer({ ...listOf([]), items: [item('t', ',"_mcp_server":"other","server":"other"')] });
  expect(await listOperations.tools('a')).toMatchObject([{ server: 'a', name: 't' }]);
  expect(await listOperations.list('a', 'tools/list')).toMatchObject([{ server: 'a', key: 't' }]);
});

describe('what is stored from a list', () => {
  test('of two reads the one that began later is used, whichever ends first', async () => {
    const { listOperations, servers } = open();
    const early = listOperations.beginToolRead('a');
    const late = listOperations.beginToolRead('a');
    await late(listOf(['new']));
    await early(listOf(['old']));
    expect(keysOf(servers.get('a')?.tools ?? [])).toBe('new');
  });

  test('X18 a long list is checked in slices and not shown before the end of the check; an equal list costs almost nothing', async () => {
    const { listOperations, answer, servers, statusOf } = open();
    const tools = (text: string) => ({
      ...listOf([]),
      items: Array.from({ length: 32 }, (_, i) => item(`t${i}`, `,"description":"${text.repeat(32 * 1024)}"`)),
    });
    answer(tools('a'));
    await listOperations.tools('a');
    answer(tools('b'));
    const seen: string[] = [];
    let turns = 0;
    let isShown = false;
    const look = () => {
      turns++;
      seen.push(`${statusOf('t0')} ${isShown}`);
      if (!isShown) setImmediate(look);
    };
    setImmediate(look);
    await listOperations.tools('a');
    isShown = true;
    expect(turns).toBeGreaterThanOrEqual(16);
    // The list is never shown with an approved status, and all of it is judged together.
    expect(new Set(seen)).toEqual(new Set(['approved false']));
    // The number of texts compared at once is bounded; the others count as changed until the next list.
    expect(new Set(tools('b').items.map(({ key }) => statusOf(key)))).toEqual(new Set(['reworded', 'changed']));
    const { tools: learnt } = servers.get('a') as ManagedServer;
    turns = 0;
    isShown = false;
    setImmediate(look);
    await listOperations.beginToolRead('a')(tools('b'));
    expect([turns, servers.get('a')?.tools === learnt]).toEqual([0, true]);
    isShown = true;
  });

  test('a change that is announced while a long list is compared prevents its caching', async () => {
    const { listOperations, answer, asked } = open();
    const items = Array.from({ length: 32 }, (_, i) => item(`t${i}`, `,"description":"${'a'.repeat(32 * 1024)}"`));
    const reading = listOperations.beginToolRead('a')({ ...listOf([], { ttlMs: 1_000, cacheScope: 'public' }), items });
    listOperations.onNotification('a', 'notifications/tools/list_changed', undefined);
    await reading;
    answer(listOf(['t']));
    await listOperations.tools('a');
    expect(asked.length).toBe(1);
  });

  test('the list of a server that was replaced meanwhile is discarded', async () => {
    const { listOperations, servers, replace } = open();
    const reading = listOperations.beginToolRead('a');
    replace({ concurrency: 2 });
    await reading(listOf(['old']));
    expect(servers.get('a')?.tools).toEqual([]);
    await listOperations.beginToolRead('nobody')(listOf(['x']));
  });

  test('a public list that was read at the start is cached, a private one is not', async () => {
    const { listOperations, answer, asked } = open();
    answer(listOf(['asked']));
    await listOperations.beginToolRead('a')(listOf(['public'], { ttlMs: 1_000, cacheScope: 'public' }));
    expect(await namesOf(listOperations.tools('a'))).toBe('public');
    listOperations.drop('a');
    await listOperations.beginToolRead('a')(listOf(['private'], { ttlMs: 1_000 }));
    expect(await namesOf(listOperations.tools('a'))).toBe('asked');
    expect(asked.length).toBe(1);
  });

  test('only new tools are stored, and only changed tools drop cached answers', async () => {
    const { listOperations, answer, saved, dropped } = open();
    answer(listOf(['t']));
    await listOperations.tools('a');
    await listOperations.tools('a');
    expect(saved).toEqual(['t']);
    dropped.length = 0;
    answer({ ...listOf([]), items: [item('t', ',"description":"other"')] });
    await listOperations.tools('a');
    await listOperations.tools('a');
    expect([saved, dropped]).toEqual([['t', 't'], ['a']]);
  });

  test('tools that an earlier host knew are restored', () => {
    const { listOperations, servers } = open();
    listOperations.restore(servers.get('a') as ManagedServer);
    expect(keysOf(servers.get('a')?.tools ?? [])).toBe('recalled');
  });
});
