import { expect, test } from 'vitest';
import { failureOf } from '../../test/fakes/policy-call.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import type { ListMethod } from '../session/lists.js';
import type { Session } from '../session/session.js';
import { NOTIFICATION } from '../wire/methods.js';
import type { CatalogServer } from './catalog-server.js';
import { ServerRun } from './server-runs.js';

const everything = '{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true}}';

/** A legacy server. `refuse`: what fails when it is asked. */
function open({ capabilities = everything, refuse = [] as string[] } = {}) {
  const clock = new FakeClock();
  const asked: string[] = [];
  const learnt: ListMethod[] = [];
  const announced: string[] = [];
  /** How much had been learnt each time. */
  const keeps: number[] = [];
  const problems: unknown[] = [];
  const set = { uris: [] as string[], closedBy: undefined as HostError | undefined };
  const isRefused = (what: string) => refuse.includes(what);
  const session = {
    server: 'a',
    facts: { era: 'legacy', capabilities: Buffer.from(capabilities) },
    get closedBy() {
      return set.closedBy;
    },
    list: async (method: ListMethod) => {
      asked.push(method);
      if (isRefused(method)) throw new HostError('timeout', 'too slow');
      return { items: [], pages: 1, ttlMs: 0, cacheScope: 'private' };
    },
    request: async (method: string, params: string) => {
      const line = `${method.slice('resources/'.length)} ${(JSON.parse(params) as { uri: string }).uri}`;
      asked.push(line);
      return isRefused(line)
        ? { kind: 'error', bytes: Buffer.from('{"code":-32602,"message":"no"}') }
        : { kind: 'result', bytes: Buffer.from('{}') };
    },
  } as unknown as Session;
  const owner = { definition: { name: 'a' } } as CatalogServer;
  const context = {
    clock,
    findServer: () => owner,
    listings: {
      learnList: (_server: CatalogServer, method: ListMethod) => void learnt.push(method),
      save: () => void keeps.push(learnt.length),
      learnFacts: () => {},
      changed: () => {},
    },
    uris: () => set.uris,
    clean: (text: string) => text,
    onProblem: (error: unknown) => problems.push(error),
  };
  const run = new ServerRun(context, session, 'a', owner, (method) => announced.push(method));
  run.begin();
  return { clock, run, set, asked, learnt, keeps, announced, problems };
}

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

test('offered lists are read when the server is ready, one after the other; a failed one does not affect the others', async () => {
  const { run, asked, learnt, keeps, problems } = open({ refuse: ['resources/list'] });
  expect(asked).toEqual([]);
  run.ready();
  await run.listsRead;
  expect(asked).toEqual(['prompts/list', 'resources/list', 'resources/templates/list']);
  expect([learnt, problems.length]).toEqual([['prompts/list', 'resources/templates/list'], 1]);
  expect([keeps, run.offeredLists]).toEqual([[2], asked]);
  const bare = open({ capabilities: '{"tools":{}}' });
  bare.run.ready();
  await bare.run.listsRead;
  expect(bare.asked).toEqual([]);
});

test('what changed is read again, and nothing before it is ready', async () => {
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
  expect(asked.sort()).toEqual(['resources/list', 'resources/templates/list']);
  expect(keeps).toEqual([3, 4, 5]);
});

test.each(['constructor', 'toString', '__proto__'])(
  'E12 a notification called %s is one that is not known',
  async (name) => {
    const { run, asked } = open();
    run.ready();
    await run.listsRead;
    asked.length = 0;
    run.onNotification(name, undefined);
    expect(asked).toEqual([]);
  },
);

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

test('a new run and a renewed session subscribe to everything again; possible changes are announced', async () => {
  const { run, set, asked, announced } = open({ capabilities: '{"prompts":{"listChanged":true}}' });
  set.uris = ['r:1', 'r:2'];
  run.renewed();
  expect(asked).toEqual([]);
  run.ready();
  await run.listsRead;
  await settle();
  const told = ['subscribe r:1', 'subscribe r:2'];
  expect(asked.filter((line) => line.startsWith('subscribe'))).toEqual(told);
  run.renewed();
  await settle();
  expect(asked.filter((line) => line.startsWith('subscribe'))).toEqual([...told, ...told]);
  expect(announced).toEqual([NOTIFICATION.promptsChanged]);
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
