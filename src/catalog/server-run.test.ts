import { expect, test } from 'vitest';
import { failureOf } from '../../test/fakes/policy-call.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { ServerThrottle } from '../policy/throttles.js';
import type { ListMethod } from '../session/lists.js';
import type { CallOptions, Session } from '../session/session.js';
import { NOTIFICATION } from '../wire/methods.js';
import type { CatalogServer } from './catalog-server.js';
import { ServerRun } from './server-run.js';

const everything = '{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true}}';

/**
 * A legacy server. `refuse`: requests that it refuses. `away`: requests that get a 502, or the status that follows them. `hung`: lists
 * that it does not answer.
 */
function open({
  capabilities = everything,
  refuse = [] as string[],
  away = [] as string[],
  hung = [] as string[],
} = {}) {
  const clock = new FakeClock();
  const asked: string[] = [];
  const learnt: ListMethod[] = [];
  const announced: string[] = [];
  /** How many lists had been read at each point. */
  const keeps: number[] = [];
  const problems: unknown[] = [];
  const facts: string[] = [];
  let forgotten = 0;
  const set = { uris: [] as string[], closedBy: undefined as HostError | undefined, capabilities };
  const throttle = new ServerThrottle(clock);
  const mustBeThere = (what: string) => {
    const found = away.find((each) => each.startsWith(what));
    if (found === undefined) return;
    if (found.endsWith('429')) throw new HostError('overloaded', 'too many', { httpStatus: 429, retryAfterMs: 90_000 });
    throw new HostError('transport', 'bad gateway', { httpStatus: 502 });
  };
  const isRefused = (what: string) => refuse.includes(what);
  const session = {
    server: 'a',
    hasListenStream: false,
    get facts() {
      return { era: 'legacy', capabilities: Buffer.from(set.capabilities) };
    },
    get closedBy() {
      return set.closedBy;
    },
    list: async (method: ListMethod, { signal }: CallOptions) => {
      asked.push(method);
      mustBeThere(method);
      if (hung.includes(method))
        await new Promise((_resolve, reject) =>
          signal?.addEventListener('abort', () => reject(new HostError('cancelled', 'given up'))),
        );
      if (isRefused(method)) throw new HostError('protocol_error', 'too many items', { reason: 'items' });
      return { items: [], pages: 1, ttlMs: 0, cacheScope: 'private' };
    },
    request: async (method: string, params: string) => {
      const line = `${method.slice('resources/'.length)} ${(JSON.parse(params) as { uri: string }).uri}`;
      asked.push(line);
      mustBeThere(line);
      return isRefused(line)
        ? { kind: 'error', bytes: Buffer.from('{"code":-32602,"message":"no"}') }
        : { kind: 'result', bytes: Buffer.from('{}') };
    },
  } as unknown as Session;
  const owner = { definition: { name: 'a' } } as CatalogServer;
  const context = {
    clock,
    throttle,
    findServer: () => owner,
    beginToolRead: () => () => void learnt.push('tools/list'),
    onToolsFailed: (_server: string, error: unknown) => problems.push(error),
    forgetAnswers: () => void forgotten++,
    listings: {
      learnList: (_server: CatalogServer, method: ListMethod) => void learnt.push(method),
      save: () => void keeps.push(learnt.length),
      learnFacts: () => void facts.push(set.capabilities),
      changed: () => {},
    },
    uris: () => set.uris,
    clean: (text: string) => text,
    onProblem: (error: unknown) => problems.push(error),
  };
  const run: ServerRun = new ServerRun(context, session, 'a', owner, (method) => {
    announced.push(method);
    run.onNotification(method);
  });
  run.begin();
  const subscribes = () => asked.filter((line) => line.startsWith('subscribe'));
  return {
    ...{ clock, run, set, away, asked, learnt, keeps, announced, problems, throttle, facts, subscribes },
    forgotten: () => forgotten,
  };
}

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

test('offered lists are read when the server is ready, one after the other; a failed one does not affect the others', async () => {
  const { run, asked, learnt, keeps, problems } = open({ refuse: ['resources/list'] });
  expect(asked).toEqual([]);
  run.ready();
  await run.listsRead;
  expect(asked).toEqual(['prompts/list', 'resources/list', 'resources/templates/list']);
  expect([learnt, problems.length]).toEqual([['prompts/list', 'resources/templates/list'], 1]);
  expect(keeps).toEqual([2]);
  const bare = open({ capabilities: '{"tools":{}}' });
  bare.run.ready();
  await bare.run.listsRead;
  expect(bare.asked).toEqual([]);
});

test('changed lists are read again, and none before the server is ready', async () => {
  const { clock, run, asked, keeps } = open();
  run.onNotification(NOTIFICATION.promptsChanged, undefined);
  await clock.advanceAsync(1_000);
  expect(asked).toEqual([]);
  run.ready();
  await run.listsRead;
  asked.length = 0;
  run.onNotification(NOTIFICATION.resourcesChanged, undefined);
  run.onNotification(NOTIFICATION.resourcesChanged, undefined);
  run.onNotification(NOTIFICATION.toolsChanged, undefined);
  await clock.advanceAsync(1_000);
  expect(asked.sort()).toEqual(['resources/list', 'resources/templates/list', 'tools/list']);
  expect(keeps).toEqual([3, 4, 5]);
});

test.each(['constructor', 'toString', '__proto__'])('E12 a notification named %s is unknown', async (name) => {
  const { run, asked } = open();
  run.ready();
  await run.listsRead;
  asked.length = 0;
  run.onNotification(name, undefined);
  expect(asked).toEqual([]);
});

test('a server receives each change of the subscribed resources, in order, and only changes', async () => {
  const { run, set, asked } = open({ capabilities: '{}' });
  run.ready();
  set.uris = ['r:1'];
  await Promise.all([run.subscribe('r:1'), run.subscribe('r:1')]);
  expect(asked).toEqual(['subscribe r:1']);
  set.uris = [];
  run.unsubscribe('r:1');
  set.uris = ['r:1'];
  await run.subscribe('r:1');
  expect(asked.at(-1)).toBe('subscribe r:1');
  const before = asked.length;
  await run.subscribe('r:1');
  expect(asked.length).toBe(before);
});

test('a refused subscription rejects, and may be tried again', async () => {
  const { run, set, asked } = open({ capabilities: '{}', refuse: ['subscribe r:1'] });
  run.ready();
  set.uris = ['r:1'];
  const refused = await failureOf(run.subscribe('r:1'));
  expect([refused.code, refused.details.rpcCode]).toEqual(['protocol_error', -32602]);
  await failureOf(run.subscribe('r:1'));
  expect(asked.length).toBe(2);
});

test('W4 a new run and a renewed session subscribe to everything again', async () => {
  const { run, set, asked } = open({ capabilities: '{"prompts":{"listChanged":true}}' });
  set.uris = ['r:1', 'r:2'];
  void run.renewed();
  await settle();
  // The first tools may have been read in the lost session. The rest begins with `ready`.
  expect(asked).toEqual(['tools/list']);
  run.ready();
  await run.listsRead;
  await settle();
  const told = ['subscribe r:1', 'subscribe r:2'];
  expect(asked.filter((line) => line.startsWith('subscribe'))).toEqual(told);
  void run.renewed();
  await settle();
  expect(asked.filter((line) => line.startsWith('subscribe'))).toEqual([...told, ...told]);
});

test('W28 a renewed session may be another release: facts and all lists are learnt again, also without notifications', async () => {
  const { clock, run, set, asked, announced, facts, forgotten } = open({ capabilities: '{"tools":{}}' });
  run.ready();
  await run.listsRead;
  expect([asked, forgotten()]).toEqual([[], 0]);
  set.capabilities = '{"tools":{},"prompts":{}}';
  const relisted = run.renewed();
  expect(announced).toEqual([NOTIFICATION.promptsChanged]);
  await relisted();
  expect(asked).toEqual(['tools/list']);
  await clock.advanceAsync(100);
  expect(asked).toEqual(['tools/list', 'prompts/list']);
  expect([facts, forgotten()]).toEqual([['{"tools":{}}', '{"tools":{},"prompts":{}}'], 1]);
  // Prompts are gone again: they are not requested.
  set.capabilities = '{}';
  void run.renewed();
  await clock.advanceAsync(100);
  expect(asked.slice(2)).toEqual(['tools/list']);
});

test('W29 a subscription that failed is made again, after 1 s doubling to 60 s, until it is accepted', async () => {
  const { clock, run, set, away, subscribes, problems } = open({ capabilities: '{}', away: ['subscribe r:2'] });
  set.uris = ['r:1', 'r:2'];
  run.ready();
  await settle();
  for (const [i, ms] of [1, 2, 4, 8, 16, 32, 60, 60].map((s) => s * 1_000).entries()) {
    await clock.advanceAsync(ms - 1);
    expect(subscribes().length).toBe(2 + i);
    await clock.advanceAsync(1);
    expect(subscribes().length).toBe(3 + i);
  }
  // The second problem of a row is not reported.
  expect(problems.length).toBe(1);
  away.length = 0;
  await clock.advanceAsync(60_000);
  const all = subscribes().length;
  expect(
    subscribes()
      .slice(1)
      .every((line) => line === 'subscribe r:2'),
  ).toBe(true);
  await clock.advanceAsync(600_000);
  expect(subscribes().length).toBe(all);
});

test('W29 a resource that is refused for good is not asked for again in the session, nor after its subscriber left', async () => {
  const { clock, run, set, subscribes } = open({
    capabilities: '{}',
    refuse: ['subscribe r:1'],
    away: ['subscribe r:2'],
  });
  set.uris = ['r:1', 'r:2'];
  run.ready();
  await clock.advanceAsync(1_000);
  expect(subscribes()).toEqual(['subscribe r:1', 'subscribe r:2', 'subscribe r:2']);
  set.uris = ['r:1'];
  await clock.advanceAsync(600_000);
  expect(subscribes().length).toBe(3);
  void run.renewed();
  await settle();
  expect(subscribes().slice(3)).toEqual(['subscribe r:1']);
});

test.each(['end', 'close'])('W29 nothing is repeated after the %s of the run', async (how) => {
  const { clock, run, set, asked } = open({ away: ['subscribe', 'prompts/list'] });
  set.uris = ['r:1'];
  run.ready();
  await run.listsRead;
  const before = asked.length;
  if (how === 'end') run.end();
  else set.closedBy = new HostError('transport', 'gone');
  await clock.advanceAsync(600_000);
  expect([before > 0, asked.length]).toEqual([true, before]);
});

test('W28 a run that ends while a list is read requests no other list, although its session is still open', async () => {
  const { clock, run, asked, problems } = open({ hung: ['prompts/list'] });
  run.ready();
  await settle();
  run.end();
  await run.listsRead;
  run.onNotification(NOTIFICATION.resourcesChanged);
  await clock.advanceAsync(60_000);
  expect([asked, problems]).toEqual([['prompts/list'], []]);
});

test('W29 a run that ends while it subscribes makes no other subscription', async () => {
  const { clock, run, set, subscribes } = open({ capabilities: '{}' });
  set.uris = Array.from({ length: 100 }, (_, i) => `r:${i}`);
  run.ready();
  run.end();
  await clock.advanceAsync(60_000);
  expect(subscribes().length).toBeLessThanOrEqual(8);
});

test('W11 a 429 on a list or a subscription throttles the server, and both wait for the end of the pause', async () => {
  const { clock, run, set, away, asked, throttle, problems } = open({ away: ['prompts/list 429'] });
  run.ready();
  await run.listsRead;
  expect([asked, throttle.leftMs('a')]).toEqual([['prompts/list'], 90_000]);
  away.length = 0;
  set.uris = ['r:1'];
  const refused = await failureOf(run.subscribe('r:1'));
  expect([refused.code, refused.details.reason]).toEqual(['overloaded', 'throttled']);
  void run.renewed();
  await clock.advanceAsync(89_999);
  expect([asked.length, problems.length]).toEqual([1, 1]);
  await clock.advanceAsync(1);
  expect(asked.slice(1).sort()).toEqual([
    'prompts/list',
    'resources/list',
    'resources/templates/list',
    'subscribe r:1',
    'tools/list',
  ]);
  expect(throttle.size).toBe(0);
});

test('E1 with another account all lists are read again, whether the server announces changes or not', async () => {
  const { run, announced } = open({ capabilities: '{"tools":{},"resources":{"listChanged":true}}' });
  run.accountChanged();
  expect(announced).toEqual([]);
  run.ready();
  await settle();
  run.accountChanged();
  expect(announced).toEqual([NOTIFICATION.toolsChanged, NOTIFICATION.resourcesChanged]);
});
