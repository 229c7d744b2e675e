import { expect, test } from 'vitest';
import { fakeClient } from '../../../test/fakes/fake-exchange.js';
import { FakeGateway } from '../../../test/fakes/fake-router.js';
import { charsPerTurn, MatchPacer } from './uri-templates.js';

const turn = () => new Promise<void>((resolve) => setImmediate(resolve));

test('E9 in one turn of the event loop a bounded number of characters is matched', async () => {
  const pacer = new MatchPacer();
  const half = charsPerTurn / 2;
  expect([half, half].map((chars) => pacer.wait(chars))).toEqual([undefined, undefined]);
  expect(pacer.wait(1)).toBeInstanceOf(Promise);
  await turn();
  // A text above the limit of a turn gets a turn alone.
  expect(pacer.wait(2 * charsPerTurn)).toBeUndefined();
  expect(pacer.wait(1)).toBeInstanceOf(Promise);
});

const long = (i: number) => `file:///${String(i).padEnd(8_000, 'x')}`;
const servers = { a: { templates: ['file:///{+path}'] }, b: { resources: ['b://x'] } };

test('E9 long URIs that arrive together are matched one per turn, and none is lost', async () => {
  const gateway = new FakeGateway(servers);
  const asked = Array.from({ length: 5 }, (_, i) =>
    gateway.ask(fakeClient(), 'resources/read', JSON.stringify({ uri: long(i) })),
  );
  expect(gateway.upstreams.requests.length).toBe(1);
  await turn();
  expect(gateway.upstreams.requests.length).toBeLessThan(5);
  expect((await Promise.all(asked)).map(({ result }) => result)).toEqual(['{}', '{}', '{}', '{}', '{}']);
  expect(gateway.upstreams.requests.map(({ params }) => params?.slice(16, 17))).toEqual(['0', '1', '2', '3', '4']);
});

test('E9 a stream that subscribes to many long URIs matches one per turn too', async () => {
  const gateway = new FakeGateway(servers);
  const filter = { resourceSubscriptions: [0, 1, 2, 3].map(long) };
  const stream = gateway.send(
    fakeClient({ era: 'modern' }),
    'subscriptions/listen',
    JSON.stringify({ notifications: filter }),
  );
  for (let i = 0; i < 50; i++) await Promise.resolve();
  expect(gateway.upstreams.subscribedFrom.length).toBe(1);
  for (let i = 0; i < 10; i++) await turn();
  expect(gateway.upstreams.subscribedFrom.length).toBe(4);
  expect(JSON.parse(String(stream.heard[0]?.params)).notifications).toEqual(filter);
});
