/** Hosts that share the queue of a mailbox: each request is run by one of them, whatever becomes of the others. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { eventually } from '../../eventually.js';
import { type NatsServerFake, startNatsServer } from '../../fakes/nats-server.js';
import { isEmpty, type RigHost, type RigWorker, ranOf, request, serve, startHost, startWorker } from './nats-rig.js';
import { type TcpCut, tcpCut } from './tcp-cut.js';

let server: NatsServerFake;
let worker: RigWorker;
const hosts: RigHost[] = [];
const ways: TcpCut[] = [];
const ids = (count: number, prefix: string) => Array.from({ length: count }, (_, n) => `${prefix}${n}`);

beforeEach(async () => {
  server = await startNatsServer();
});
afterEach(async () => {
  await worker.link.close();
  await Promise.all(hosts.splice(0).map(({ host }) => host.close()));
  await Promise.all(ways.splice(0).map((way) => way.close()));
  await server.stop();
});

test('D-40 three hosts share 600 requests, each is run once, and each of them runs some', async () => {
  const pause = () => new Promise<void>((resolve) => setTimeout(resolve, 1));
  for (const instance of ['a', 'b', 'c'])
    hosts.push(await startHost({ url: server.url, instance, laneWindow: 16, run: pause }));
  worker = await startWorker(server.url);
  await Promise.all(ids(600, 'k').map((id) => worker.link.send(request(id))));
  await eventually('all replies', () => worker.replies.length >= 600);
  const ran = hosts.flatMap((rig) => rig.ran);
  expect(ran.length).toBe(600);
  expect(new Set(ran).size).toBe(600);
  for (const rig of hosts) expect(rig.ran.length).toBeGreaterThan(0);
  expect(new Set(worker.replies.map(({ id }) => id)).size).toBe(600);
});

test('D-40 a host that dies over its calls leaves them uncertain: none is run a second time, and each is answered', async () => {
  const way = await tcpCut(server.port);
  ways.push(way);
  const stuck = () => new Promise<void>(() => {});
  const dying = await startHost({ url: way.url, instance: 'dying', ackWaitMs: 1_500, laneWindow: 8, run: stuck });
  worker = await startWorker(server.url);
  await Promise.all(ids(8, 'lost').map((id) => worker.link.send(request(id))));
  await eventually('all of them to run', () => dying.ran.length === 8);
  for (const instance of ['b', 'c']) hosts.push(await startHost({ url: server.url, instance, ackWaitMs: 1_500 }));
  await Promise.all(ids(8, 'kept').map((id) => worker.link.send(request(id))));
  await way.close();
  ways.pop();
  expect(await dying.link.closed).toMatchObject({ code: 'transport' });
  await eventually('all replies', () => new Set(worker.replies.map(({ id }) => id)).size === 16);
  for (const id of ids(8, 'lost')) expect(worker.bodyOf(id)).toBe('{"lost":true}');
  for (const id of ids(8, 'kept')) expect(worker.bodyOf(id)).toBe(`{"ran":{"id":"${id}"}}`);
  expect(hosts.flatMap((rig) => rig.ran).sort()).toEqual(ids(8, 'kept').sort());
});

test('B7 a host that was cut off after running answers from the journal when the request comes again', async () => {
  const way = await tcpCut(server.port);
  ways.push(way);
  let isCut = false;
  const first = await startHost({
    ...{ url: way.url, instance: 'first', ackWaitMs: 1_500 },
    async deliver(delivery, rig) {
      const claim = { mailbox: 'w1', key: delivery.id, hash: delivery.body.toString() };
      await rig.host.journal.claim({ ...claim, rememberUntil: new Date(Date.now() + 60_000), isRepeatable: false });
      rig.ran.push(delivery.id);
      await rig.host.journal.finish('w1', delivery.id, Buffer.from('{"ran":"first"}'));
      // After the result is kept and before the request is acknowledged.
      way.cut();
      isCut = true;
      delivery.ack();
    },
  });
  hosts.push(first);
  worker = await startWorker(server.url);
  await worker.link.send(request('a'));
  await eventually('the cut', () => isCut);
  const second = await startHost({ url: server.url, instance: 'second', ackWaitMs: 1_500 });
  hosts.push(second);
  await eventually('the request again', () => second.claims.length === 1);
  expect(second.claims).toEqual([{ kind: 'done', reply: Buffer.from('{"ran":"first"}') }]);
  expect(second.ran).toEqual([]);
  expect(worker.bodyOf('a')).toBe('{"ran":"first"}');
});

test.each([
  ['is not in its table any more', new Map()],
  ['has a key whose time is over', new Map([['w1', { role: 'reader', expiresAt: new Date(0) }]])],
])(
  'D-40 what waits on a host for a mailbox that %s is given back, and what runs is not run twice',
  async (_, table) => {
    let over = () => {};
    const run = () => new Promise<void>((resolve) => (over = resolve));
    const leaving = await startHost({
      ...{ url: server.url, instance: 'leaving' },
      deliver(delivery, rig) {
        if (delivery.id === 'runs') void serve(delivery, rig, run, false);
      },
    });
    hosts.push(leaving);
    worker = await startWorker(server.url);
    await worker.link.send(request('runs'));
    await eventually('it to run', () => leaving.ran.length === 1);
    await worker.link.send(request('waits'));
    await eventually('it to wait', () => leaving.deliveries.length === 2);
    await leaving.host.replaceCredentials(table);
    // Whose time is over is seen with what comes next.
    await worker.link.send(request('next'));
    await eventually('both given back', () => leaving.deliveries.every(({ isOwed }) => isOwed === false));
    // Long before the server would have waited long enough for a word of the first one.
    const other = await startHost({
      ...{ url: server.url, instance: 'other' },
      deliver(delivery, rig) {
        if (delivery.id === 'waits') void delivery.refuse('{"denied":true}');
        else void serve(delivery, rig, undefined, false);
      },
    });
    hosts.push(other);
    await eventually('the refusal', () => worker.bodyOf('waits') === '{"denied":true}');
    await eventually('a look at what runs', () => other.claims.some(({ kind }) => kind === 'elsewhere'));
    over();
    await eventually('the results', () => worker.bodyOf('runs') === ranOf('runs') && worker.bodyOf('next'));
    await eventually('an empty queue', isEmpty(other));
    expect([leaving.ran, other.ran]).toEqual([['runs'], ['next']]);
    expect(leaving.deliveries.length).toBe(2);
  },
);

test('AC-BR4 over 10 kills of the server under load nothing that was held is lost, and nothing is run twice', async () => {
  const ran: string[] = [];
  const open = async (instance: string): Promise<RigHost> =>
    eventually('a host', () =>
      startHost({ url: server.url, instance, ackWaitMs: 1_000, run: async ({ id }) => void ran.push(id) }).catch(
        () => undefined,
      ),
    );
  worker = await startWorker(server.url);
  hosts.push(await open('a'));
  const held: string[] = [];
  const replied = new Set<string>();
  for (let kill = 0; kill < 10; kill++) {
    const sending = ids(40, `k${kill}-`).map((id) =>
      worker.link.send(request(id)).then(
        () => held.push(id),
        () => {},
      ),
    );
    await Promise.race(sending);
    await server.kill();
    await Promise.all(sending);
    for (const { id } of worker.replies) replied.add(id);
    await server.start();
    const [before] = hosts.splice(0);
    await before?.host.close();
    hosts.push(await open(`h${kill}`));
    worker = await startWorker(server.url);
  }
  await eventually('every reply', () => {
    for (const { id } of worker.replies) replied.add(id);
    return held.every((id) => replied.has(id));
  });
  expect(held.length).toBeGreaterThan(10);
  expect(new Set(ran).size).toBe(ran.length);
});
