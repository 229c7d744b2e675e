import { expect, test } from 'vitest';
import { parseServerDefinition } from '../config/server-definition.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { memoryPinStore } from '../policy/pin-records.js';
import { Pins } from '../policy/pins.js';
import type { ListedItem } from '../session/lists.js';
import type { Session } from '../session/session.js';
import type { Supervisor } from '../supervisor/supervisor.js';
import type { CatalogServer, KnownFacts } from './catalog-server.js';
import { Listings } from './listings.js';
import { listsOriginOf, originOf } from './server-origin.js';
import { emptyListing, type Listing, type SaveFailure } from './store/listings-table.js';

const item = (key: string, description = ''): ListedItem => ({
  key,
  raw: Buffer.from(JSON.stringify({ name: key, description, inputSchema: { type: 'object' } })),
});
const offered = ['prompts/list'] as const;
const hints = { ttlMs: 0, isPublic: false };
const facts: KnownFacts = {
  era: 'legacy',
  version: '2025-11-25',
  capabilities: Buffer.from('{}'),
  serverInfo: Buffer.from('{"name":"a"}'),
  instructions: undefined,
};

/** Without members that are undefined. */
const defined = (entry: object) => Object.fromEntries(Object.entries(entry).filter(([, value]) => value !== undefined));

function open(entry: Record<string, unknown> = {}, recalled: Listing = emptyListing) {
  const clock = new FakeClock();
  const saved: Listing[] = [];
  const problems: unknown[] = [];
  /** Failures of the next writes. */
  const failures: SaveFailure[] = [];
  let lastUnkept: (why: SaveFailure) => void = () => {};
  const state = { kind: 'ready' };
  const supervisor = {
    snapshot: () => ({ state: state.kind, isOff: state.kind === 'stopped' }),
  } as unknown as Supervisor<Session>;
  const make = (more: Record<string, unknown>): CatalogServer => {
    const definition = parseServerDefinition('a', defined({ command: 'a', ...more }), true);
    const origins = { origin: originOf(definition.spec), listsOrigin: listsOriginOf(definition) };
    return { definition, supervisor, ...origins, tools: [], startMs: 0, keepRunningDuring: (run) => run() };
  };
  const servers = new Map([['a', make(entry)]]);
  const policyOf = () => (servers.get('a') as CatalogServer).definition.pins;
  const pins = new Pins({ store: memoryPinStore(), policyOf });
  const known = new Listings({
    findServer: (name) => servers.get(name),
    pins,
    store: {
      load: () => recalled,
      isStored: () => saved.length > 0 || recalled !== emptyListing,
      save(_name, _print, { facts: said, lists, inputs }, onUnkept) {
        lastUnkept = onUnkept;
        const failure = failures.shift();
        if (failure) onUnkept(failure);
        else saved.push({ facts: said, lists: new Map(lists), inputs });
      },
    },
    onProblem: (error) => problems.push(error),
  });
  const managed = servers.get('a') as CatalogServer;
  const learn = (...items: ListedItem[]) => {
    pins.observe('a', items, clock.date());
    known.learnTools(managed, items, hints);
  };
  const shown = () =>
    known
      .known('a')
      ?.lists.get('tools/list')
      ?.items.map(({ raw }) => String(raw));
  const texts = (...items: ListedItem[]) => items.map(({ raw }) => String(raw));
  const told: string[] = [];
  known.onChanged((server) => told.push(server));
  const revision = () => known.known('a')?.revision ?? Number.NaN;
  return {
    clock,
    pins,
    saved,
    problems,
    failures,
    unkept: (why: SaveFailure) => lastUnkept(why),
    state,
    servers,
    make,
    known,
    managed,
    learn,
    shown,
    texts,
    told,
    revision,
  };
}

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

test('an unchanged listing causes no change, notification or write', async () => {
  const { known, managed, learn, saved, told, revision } = open();
  learn(item('t'));
  known.learnFacts(managed, facts, offered);
  known.learnList(managed, 'prompts/list', { items: [item('p')], ...hints });
  const before = revision();
  await settle();
  expect([told, saved.length]).toEqual([['a'], 1]);
  known.save(managed);
  known.save(managed);
  expect(saved.length).toBe(2);
  learn(item('t'));
  known.learnFacts(managed, { ...facts, serverInfo: Buffer.from('{"name":"a"}') }, offered);
  known.learnList(managed, 'prompts/list', { items: [item('p')], ...hints });
  await settle();
  known.save(managed);
  expect([told.length, saved.length, revision()]).toEqual([1, 2, before]);
  expect([...(saved[1]?.lists.keys() ?? [])]).toEqual(['tools/list', 'prompts/list']);
  // The next run of the server offers fewer lists than the previous one.
  known.learnFacts(managed, facts, []);
  expect([...(known.known('a')?.lists.keys() ?? [])]).toEqual(['tools/list']);
  expect(revision()).toBeGreaterThan(before);
});

test('a listing that could not be written is written when the tools are listed again, changed or not', () => {
  const { known, managed, learn, saved, failures, problems } = open();
  failures.push({ error: 'no room' }, 'pins');
  learn(item('t'));
  expect([saved.length, problems]).toEqual([0, ['no room']]);
  // The pins of the listing could not be written; the code that tried has reported that.
  learn(item('t'));
  expect([saved.length, problems.length]).toEqual([0, 1]);
  learn(item('t'));
  learn(item('t'));
  known.save(managed);
  expect(saved.length).toBe(1);
});

test('a listing that could not be written is written by the successor of the server', () => {
  const { known, managed, learn, saved, failures, servers, make } = open();
  failures.push({ error: 'no room' });
  learn(item('t'));
  const next = make({ env: { OTHER: '1' } });
  servers.set('a', next);
  known.restore(next, managed);
  known.learnTools(next, [item('t')], hints);
  expect(saved.length).toBe(1);
});

test.each([
  ['the same program', { env: { OTHER: '1' } }, 2],
  ['another program', { args: ['other'] }, 1],
])('a listing that cannot be written after its server was replaced by %s', (_whose, entry, writes) => {
  const { known, managed, learn, saved, unkept, servers, make } = open();
  learn(item('t'));
  const next = make(entry);
  servers.set('a', next);
  known.restore(next, managed);
  unkept({ error: 'no room' });
  known.save(next);
  expect(saved.length).toBe(writes);
});

test('each change increases the revision, and a list that was never read is absent', () => {
  const { known, managed, revision } = open();
  const revisions = [revision()];
  known.learnFacts(managed, facts, offered);
  revisions.push(revision());
  known.learnFacts(managed, { ...facts, serverInfo: undefined }, offered);
  revisions.push(revision());
  known.learnList(managed, 'prompts/list', { items: [], ...hints });
  revisions.push(revision());
  known.learnList(managed, 'prompts/list', { items: [], ttlMs: 1, isPublic: false });
  revisions.push(revision());
  expect(revisions).toEqual([...revisions].sort((a, b) => a - b));
  expect(new Set(revisions).size).toBe(5);
  expect([...(known.known('a')?.lists.keys() ?? [])]).toEqual(['prompts/list']);
  expect(known.known('other')).toBeUndefined();
});

test('a tool that changed without approval is shown once, with its approved text, even if listed twice; a new tool is not shown', () => {
  const { learn, shown, texts, pins, known, managed } = open({ pins: 'block' });
  learn(item('t', 'old'));
  expect(shown()).toEqual([]);
  pins.approve('a', 't', String(pins.recordOf('a', 't')?.pending?.hash), new Date(0));
  known.learnTools(managed, [item('t', 'old')], undefined);
  expect(shown()).toEqual(texts(item('t', 'old')));
  learn(item('t', 'new'), item('u'));
  expect(shown()).toEqual(texts(item('t', 'old')));
  learn(item('t', 'new'), item('t', 'newer'));
  expect(shown()).toEqual(texts(item('t', 'old')));
});

test('with the policy to warn, listed tools are shown; tools without a name never are', () => {
  const { learn, shown, texts } = open({ pins: 'warn' });
  learn(item('t', 'old'));
  learn(item('t', 'new'), item('u'), item(''));
  expect(shown()).toEqual(texts(item('t', 'new'), item('u')));
});

test('listeners are notified later, once for all changes of a tick, and their errors have no effect', async () => {
  const { known, problems } = open();
  const heard: string[] = [];
  const throwing = known.onChanged(() => {
    throw new Error('mine');
  });
  known.onChanged((async () => {
    throw new Error('mine too');
  }) as () => void);
  const off = known.onChanged((server) => {
    heard.push(server);
    // A change that a listener makes is reported in the next tick.
    if (heard.length === 1) known.changed('c');
  });
  known.changed('a');
  known.changed('b');
  known.changed('a');
  expect(heard).toEqual([]);
  await settle();
  expect(heard).toEqual(['a', 'b', 'c']);
  expect(problems.length).toBe(6);
  off();
  throwing();
  known.changed('a');
  await settle();
  expect([heard.length, problems.length]).toEqual([3, 7]);
});

test('a stored listing is shown at once; lists of another server with the name are not mixed with it', () => {
  const tools = { items: [item('t')], ttlMs: 5, isPublic: true };
  const { known, managed, servers, make, shown, texts, saved, revision } = open(
    { pins: 'off' },
    { facts, lists: new Map([['tools/list', tools]]) },
  );
  expect(known.restore(managed)).toEqual(tools.items);
  expect([known.wasListed(managed), known.known('a')?.facts, saved.length]).toEqual([true, facts, 0]);
  expect(shown()).toEqual(texts(item('t')));
  const before = revision();
  const next = make({ args: ['other'] });
  servers.set('a', next);
  expect(known.wasListed(next)).toBe(false);
  known.learnFacts(managed, { ...facts, version: 'late' }, offered);
  known.save(managed);
  expect([known.known('a')?.facts, saved.length]).toEqual([undefined, 0]);
  expect(revision()).toBeGreaterThan(before);
});

test('E21 lists that were read without pins are not carried to a definition with pins', () => {
  const { known, managed, servers, make, learn } = open({ pins: 'off' });
  learn(item('t'));
  const still = make({ pins: 'off', lazy: true });
  expect(known.restore(still, managed).length).toBe(1);
  const pinned = make({ pins: 'block' });
  servers.set('a', pinned);
  expect(known.restore(pinned, still)).toEqual([]);
  known.learnTools(pinned, [item('t')], hints);
  expect(known.restore(make({ pins: 'off' }), pinned).length).toBe(1);
});

test('a suspect server still counts as up', () => {
  const { known, state } = open();
  const isReady = (kind: string) => {
    state.kind = kind;
    return known.known('a')?.isReady;
  };
  expect(['ready', 'suspect', 'connecting', 'parked', 'registered'].map(isReady)).toEqual([
    true,
    true,
    false,
    false,
    false,
  ]);
});

test.each([
  [
    'variables',
    'its lists are shown meanwhile',
    (TOKEN: string) => ({ env: { TOKEN } }),
    ['tools/list', 'prompts/list'],
  ],
  [
    ...(['headers', 'only its tools are shown meanwhile'] as const),
    (token: string) => ({ command: undefined, url: 'https://example.com/mcp', headers: { authorization: token } }),
    ['tools/list'],
  ],
])(
  'E1 with other %s a server counts as not listed until its lists are read again, and %s',
  (_what, _shown, given, shown) => {
    const { known, managed, servers, make } = open();
    const put = (next: CatalogServer, before: CatalogServer) => {
      servers.set('a', next);
      known.restore(next, before);
      return [known.wasListed(next), [...(known.known('a')?.lists.keys() ?? [])]];
    };
    const ann = make(given('ann'));
    put(ann, managed);
    known.learnTools(ann, [item('t')], hints);
    known.learnFacts(ann, facts, offered);
    known.learnList(ann, 'prompts/list', { items: [item('of ann')], ...hints });
    const same = make({ ...given('ann'), lazy: true });
    expect(put(same, ann)).toEqual([true, ['tools/list', 'prompts/list']]);
    const bob = make(given('bob'));
    expect(put(bob, same)).toEqual([false, shown]);
    // A change of another setting leaves the lists outdated until they are read again.
    const still = make({ ...given('bob'), lazy: true });
    expect(put(still, bob)).toEqual([false, shown]);
    known.learnFacts(still, facts, offered);
    expect(known.wasListed(still)).toBe(true);
  },
);

test.each([
  ['variables', (TOKEN: string) => ({ env: { TOKEN } }), ['tools/list', 'prompts/list']],
  [
    'headers',
    (authorization: string) => ({ command: undefined, url: 'https://example.com/mcp', headers: { authorization } }),
    ['tools/list'],
  ],
])(
  'E1 a stored listing that was read with other %s is shown, and its server counts as not listed',
  (_what, given, shown) => {
    const { known, managed, saved } = open(given('ann'));
    known.learnTools(managed, [item('t')], hints);
    known.learnFacts(managed, facts, offered);
    known.learnList(managed, 'prompts/list', { items: [item('of ann')], ...hints });
    known.save(managed);
    const stored = saved.at(-1) as Listing;
    const restarted = (entry: Record<string, unknown>, listing: Listing) => {
      const next = open(entry, listing);
      next.known.restore(next.managed);
      const lists = [...(next.known.known('a')?.lists.keys() ?? [])];
      return { ...next, isListed: next.known.wasListed(next.managed), lists };
    };
    expect(restarted(given('ann'), stored)).toMatchObject({ isListed: true, lists: ['tools/list', 'prompts/list'] });
    const bobs = restarted(given('bob'), stored);
    expect(bobs).toMatchObject({ isListed: false, lists: shown });
    // The facts are the same, but the next start must know with which variables they were read.
    bobs.known.learnFacts(bobs.managed, facts, offered);
    bobs.known.save(bobs.managed);
    expect(restarted(given('bob'), bobs.saved.at(-1) as Listing).isListed).toBe(true);
    // A listing of an earlier version of Hostler does not say how it was read.
    expect(restarted(given('bob'), { ...stored, inputs: undefined }).isListed).toBe(true);
  },
);
