import { describe, expect, test } from 'vitest';
import { failureOf } from '../../test/fakes/policy-call.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { denial, type Guard } from '../policy/allowlist.js';
import type { ListedItem } from '../session/lists.js';
import type { ServerCard } from '../session/server-card.js';
import type { CatalogServer } from './catalog-server.js';
import { Discovery, type DiscoveryParts } from './discovery.js';

const item = (key: string): ListedItem => ({
  key,
  raw: Buffer.from(JSON.stringify({ name: key, inputSchema: { type: 'object' }, _mcp_server: 'other' })),
});

interface Fake {
  state?: string;
  tools?: string[];
  card?: string;
  refusal?: HostError;
  /** The result of asking the server; the promise never settles when this is absent. */
  ask?: () => Promise<string[]>;
  acquire?: () => Promise<unknown>;
}

const parked = new HostError('server_parked', 'parked', { retryAfterMs: 60_000 });
const stopped = new HostError('server_stopped', 'stopped');

function open(fakes: Record<string, Fake>, more: Partial<DiscoveryParts> = {}) {
  const clock = new FakeClock();
  const problems: unknown[] = [];
  const asked: string[] = [];
  const counts = { asking: 0, askingMax: 0, held: 0, heldMax: 0 };
  let guards: readonly Guard[] = [];
  const managed = new Map(
    Object.entries(fakes).map(([name, { state = 'ready', tools = [], card, refusal, acquire }]) => [
      name,
      {
        definition: { name, card, isEnabled: true },
        startMs: 30_000,
        tools: tools.map(item),
        keepRunningDuring: async (run: () => Promise<void>) => {
          counts.heldMax = Math.max(counts.heldMax, ++counts.held);
          await run().finally(() => counts.held--);
        },
        supervisor: { snapshot: () => ({ state }), refusal: () => refusal, acquire },
      } as unknown as CatalogServer,
    ]),
  );
  const visible: DiscoveryParts['listOperations']['visible'] = (server, principal, items) =>
    items.filter(({ key }) => !denial(() => guards, { principal, server, tool: key, action: 'call' }));
  const discovery = new Discovery({
    clock,
    names: () => Object.keys(fakes).sort(),
    serverOf: (name) => {
      const found = managed.get(name);
      if (!found) throw new HostError('server_not_found', `no server named '${name}'`);
      return found;
    },
    findServer: (name) => managed.get(name),
    guards: () => guards,
    onDenied: () => {},
    listOperations: {
      visible,
      tools: async (server) => {
        asked.push(server);
        counts.askingMax = Math.max(counts.askingMax, ++counts.asking);
        try {
          const names = await (fakes[server]?.ask?.() ?? new Promise<string[]>(() => {}));
          return names.map((name) => ({ server, name, raw: item(name).raw, pin: 'approved', isUnapproved: false }));
        } finally {
          counts.asking--;
        }
      },
    },
    pins: { statusesOf: () => () => 'approved', recordOf: () => undefined, isApprovedText: () => true },
    cards: { read: async (source) => ({ source, tools: [item('from_card')] }) as unknown as ServerCard },
    wasListed: ({ tools }) => tools.length > 0,
    listsRead: async () => {},
    onProblem: (error) => problems.push(error),
    ...more,
  });
  const guard = (...given: Guard[]) => {
    guards = given;
  };
  return { clock, discovery, managed, asked, counts, problems, guard };
}

const lines = (rows: Awaited<ReturnType<Discovery['discover']>>) =>
  rows.map((row) => ('tool' in row ? [row.server, row.tool, row.state ?? ''] : [row.server, row.error.code]).join(' '));

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

describe('D-18 a discovery of all servers', () => {
  test('at its deadline returns the rows of all servers except the hanging one, ordered by name', async () => {
    const fakes: Record<string, Fake> = { m_hung: {} };
    for (const name of 'zyxwvutsrqponlkjihgfedcba') fakes[name] = { ask: async () => ['t'] };
    const { clock, discovery, counts, asked } = open(fakes);
    let rows: string[] | undefined;
    const sweep = discovery.discover().then((found) => {
      rows = lines(found);
    });
    await clock.advanceAsync(9_999);
    expect([rows, asked.length]).toEqual([undefined, 26]);
    await clock.advanceAsync(1);
    await sweep;
    expect(rows).toEqual(
      Object.keys(fakes)
        .sort()
        .map((name) => (name === 'm_hung' ? 'm_hung timeout' : `${name} t `)),
    );
    expect([counts.askingMax, clock.pendingTimers]).toEqual([8, 0]);
  });

  test('asks eight servers at a time, and ends at its own deadline when all hang', async () => {
    const names = Array.from({ length: 100 }, (_, i) => `s${String(i).padStart(3, '0')}`);
    const { clock, discovery, asked } = open(Object.fromEntries(names.map((name) => [name, {}])));
    const sweep = discovery.discover();
    await settle();
    expect(asked.length).toBe(8);
    await clock.advanceAsync(10_000);
    expect(asked.length).toBe(16);
    await clock.advanceAsync(19_999);
    expect(asked.length).toBe(24);
    await clock.advanceAsync(1);
    expect(lines(await sweep)).toEqual(names.map((name) => `${name} timeout`));
    expect([asked.length, clock.nowMs()]).toEqual([24, 30_000]);
  });

  test('ends at a deadline that its caller gives', async () => {
    const { clock, discovery } = open({ a: {}, b: { tools: ['known'] }, c: { state: 'registered', tools: ['known'] } });
    const sweep = discovery.discover({ deadlineMs: 50 });
    await clock.advanceAsync(50);
    expect(lines(await sweep)).toEqual(['a timeout', 'b known timeout', 'c known registered']);
    const over = await discovery.discover({ deadlineMs: 0, hideUnavailable: true });
    expect(lines(over)).toEqual(['a timeout', 'b timeout', 'c known registered']);
  });

  test('does not start idle servers: their last known tools or their cards are used, unless the caller wakes them', async () => {
    const { discovery, asked } = open({
      card: { state: 'registered', card: 'https://example.com/card', ask: async () => ['live'] },
      known: { state: 'registered', tools: ['old'], card: 'https://example.com/card', ask: async () => ['live'] },
      nothing: { state: 'registered', ask: async () => ['live'] },
    });
    expect(lines(await discovery.discover())).toEqual(['card from_card registered', 'known old registered']);
    expect(asked).toEqual([]);
    expect(lines(await discovery.discover({ wake: true }))).toEqual(['card live ', 'known live ', 'nothing live ']);
  });

  test('never fails as a whole', async () => {
    const { discovery, problems } = open(
      {
        bad_card: { state: 'registered', card: 'card.json' },
        good: { ask: async () => ['t'] },
        odd: { ask: () => Promise.reject(new Error('a bug')) },
        refused: { ask: () => Promise.reject(new HostError('circuit_open', 'open')) },
      },
      { cards: { read: () => Promise.reject(new HostError('connect_failed', 'no card', { reason: 'io' })) } },
    );
    expect(lines(await discovery.discover())).toEqual([
      'bad_card connect_failed',
      'good t ',
      'odd protocol_error',
      'refused circuit_open',
    ]);
    expect(problems).toMatchObject([{ message: 'a bug' }]);
  });

  test('leaves out a server that is removed meanwhile', async () => {
    const { discovery, managed } = open({ a: { ask: async () => ['t'] } });
    managed.delete('a');
    expect(await discovery.discover()).toEqual([]);
  });
});

describe('D-35 a server that cannot be called', () => {
  const fakes: Record<string, Fake> = {
    open: { tools: ['a'], ask: () => Promise.reject(new HostError('circuit_open', 'open')) },
    parked: { state: 'parked', tools: ['b'], refusal: parked },
    stopped: { state: 'stopped', tools: ['c'], refusal: stopped },
    unknown: { state: 'stopped', refusal: stopped },
  };

  test('keeps its tools, marked; one without known tools says why', async () => {
    const { discovery } = open(fakes);
    expect(lines(await discovery.discover())).toEqual([
      'open a circuit_open',
      'parked b parked',
      'stopped c stopped',
      'unknown server_stopped',
    ]);
  });

  test('is left out on request, and the reason is reported instead; an idle server is not left out', async () => {
    const { discovery } = open({ ...fakes, rests: { state: 'registered', tools: ['d'] } });
    expect(lines(await discovery.discover({ hideUnavailable: true }))).toEqual([
      'open circuit_open',
      'parked server_parked',
      'rests d registered',
      'stopped server_stopped',
      'unknown server_stopped',
    ]);
  });
});

test('D-17 the guard is asked for each tool, whatever the source of the tool', async () => {
  const { discovery, guard, clock } = open({
    card: { state: 'registered', card: 'card.json' },
    hidden: { ask: async () => ['ok'] },
    manifest: { state: 'registered', tools: ['ok', 'secret'] },
    slow: { tools: ['ok', 'secret'] },
  });
  const row = (tool: string) => (tool === 'secret' || tool === 'from_card' ? 'no' : undefined);
  guard(({ server, tool }) => {
    const reason = server === 'hidden' ? 'no' : row(tool ?? '');
    return reason === undefined ? { allow: true } : { allow: false, reason };
  });
  const sweep = discovery.discover();
  await clock.advanceAsync(10_000);
  expect(lines(await sweep)).toEqual(['manifest ok registered', 'slow ok timeout']);
});

test.each([Number.NaN, '5000'])('a deadline of %j is refused', async (deadlineMs) => {
  const { discovery, asked } = open({ a: { ask: async () => ['t'] } });
  const error = await failureOf(discovery.discover({ deadlineMs: deadlineMs as number }));
  expect([error.code, error.details.field, asked]).toEqual(['invalid_request', 'deadlineMs', []]);
});

test('D-24 a tool belongs to the server it was read from, even if its definition names another', async () => {
  const { discovery } = open({ a: { state: 'registered', tools: ['t'] }, b: { ask: async () => ['t'] } });
  expect(lines(await discovery.discover())).toEqual(['a t registered', 'b t ']);
});

describe('a card is looked up', () => {
  const card = 'https://example.com/card';
  const { discovery } = open({
    with: { card },
    'prod.json': { card },
    'https://here': { card },
    without: {},
    'x.json': {},
  });
  test.each([
    ['with', card],
    ['https://example.com/other', 'https://example.com/other'],
    ['./with', './with'],
    ['with.json', 'with.json'],
    ['prod.json', card],
    ['https://here', card],
  ])('for the argument "%s" at %s', async (given, source) => {
    expect((await discovery.card(given)).source).toBe(source);
  });
  test('neither for a server without a card nor for a name without a server', async () => {
    expect((await failureOf(discovery.card('without'))).details.reason).toBe('no_card');
    expect((await failureOf(discovery.card('x.json'))).details.reason).toBe('no_card');
    expect((await failureOf(discovery.card('nobody'))).code).toBe('server_not_found');
  });
});

describe('servers that were never seen', () => {
  const registered = (acquire: () => Promise<unknown>, more: Fake = {}): Fake => ({
    state: 'registered',
    acquire,
    ...more,
  });

  const all = (sightings: ReadonlyMap<string, Promise<void>>) => Promise.all(sightings.values());

  test('that hang, even 64 of them, delay the others by three seconds at most', async () => {
    const started: string[] = [];
    const hanging = (name: string) =>
      registered(() => {
        started.push(name);
        return new Promise<void>(() => {});
      });
    const names = Array.from({ length: 64 }, (_, i) => `a${i}`);
    const quick = registered(async () => started.push('z'));
    const { discovery, clock, counts } = open({
      ...Object.fromEntries(names.map((name) => [name, hanging(name)])),
      z: quick,
    });
    const sightings = discovery.listUnlisted();
    await clock.advanceAsync(2_999);
    expect([started.length, started.includes('z')]).toEqual([64, false]);
    await clock.advanceAsync(1);
    await sightings.get('z');
    expect([started.at(-1), counts.held]).toEqual(['z', 64]);
  });

  test('are started together, and each is released at once', async () => {
    const ready: (() => void)[] = [];
    const acquire = () => new Promise<void>((resolve) => ready.push(resolve));
    const names = ['a', 'b', 'c', 'd', 'e'];
    const { discovery, counts } = open({
      ...Object.fromEntries(names.map((name) => [name, registered(acquire)])),
      known: registered(acquire, { tools: ['t'] }),
      running: { acquire },
    });
    const learning = all(discovery.listUnlisted());
    for (let left = 5; left > 0; left--) {
      await settle();
      expect([ready.length, counts.held]).toEqual([5, left]);
      ready[5 - left]?.();
    }
    await learning;
    expect(counts).toMatchObject({ held: 0, heldMax: 5 });
  });

  test('may take their whole start timeout; a failure is reported and affects no other server', async () => {
    let tries = 0;
    const reconnecting = new HostError('reconnecting', 'not yet');
    const { discovery, problems, counts } = open({
      broken: registered(() => Promise.reject(parked)),
      slow: registered(() => (++tries < 4 ? Promise.reject(reconnecting) : Promise.resolve())),
      stopped: registered(() => Promise.reject(stopped)),
    });
    await all(discovery.listUnlisted());
    expect([tries, problems, counts.held]).toEqual([4, [parked], 0]);
  });

  test('that are not ready by then are skipped', async () => {
    const { discovery, problems, clock } = open({
      slow: registered(async () => {
        clock.advance(5_000);
        throw new HostError('reconnecting', 'not yet');
      }),
    });
    await all(discovery.listUnlisted());
    expect([problems.length, clock.nowMs()]).toEqual([1, 30_000]);
  });
});
