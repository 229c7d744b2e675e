/** The client's end: what it says when the broker is silent, gone, or not what it should be. */
import { createServer, type Server, type Socket } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { WebSocketServer } from 'ws';
import { openHostLink } from '../../../src/broker/embedded/host-link.js';
import { openWorkerLink } from '../../../src/broker/embedded/worker-link.js';
import type { Delivery, WorkerLink } from '../../../src/broker/ports.js';
import { systemClock } from '../../../src/kernel/clock.js';
import { FakeClock } from '../../../src/kernel/fake-clock.js';
import { eventually } from '../../eventually.js';
import { MemoryMailStore } from '../../fakes/memory-mail-store.js';
import { keyOf } from './core-bench.js';
import { type SocketBench, socketBench } from './socket-bench.js';

const never = new AbortController().signal;
const quiet = { replied() {}, told() {} };
const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});
const up = async (options?: Parameters<typeof socketBench>[0]): Promise<SocketBench> => {
  const bench = await socketBench(options);
  closing.push(() => bench.close());
  return bench;
};
const request = (id: string) => ({ id, body: Buffer.from('{}'), ttlMs: 60_000 });

/** Something that answers as it likes. */
async function scripted(onFrame: (frame: { kind: string; id?: string }, say: (frame: object) => void) => void) {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  server.on('connection', (socket) =>
    socket.on('message', (data: Buffer) =>
      onFrame(JSON.parse(data.toString()), (frame) => socket.send(JSON.stringify(frame))),
    ),
  );
  await eventually('a port', () => server.address() !== null);
  closing.push(() => {
    for (const client of server.clients) client.terminate();
    server.close();
  });
  return `ws://127.0.0.1:${(server.address() as { port: number }).port}`;
}

const welcome = { kind: 'welcome', v: 1, mailbox: 'alice', epoch: 'e' };

test('AC-BR9 a deliver without a receipt ends after 30 s as uncertain, and receipts are matched by id', async () => {
  const clock = new FakeClock();
  let seen = 0;
  const url = await scripted((frame, say) => {
    if (frame.kind === 'hello') say(welcome);
    if (frame.kind === 'subscribe') say({ kind: 'subscribed' });
    if (frame.kind !== 'deliver') return;
    seen++;
    // Receipts of others, and of nobody, before its own.
    say({ kind: 'delivered', id: 'nobodys', to: 'host' });
    say({ kind: 'delivered', id: 'a', to: 'elsewhere' });
    if (frame.id === 'b') say({ kind: 'delivered', id: 'b', to: 'host' });
  });
  const link = await openWorkerLink({ url, key: keyOf('alice'), clock })(quiet, never);
  const outcome: unknown[] = [];
  const waiting = link.send(request('a')).catch((error: unknown) => outcome.push(error));
  await link.send(request('b'));
  expect(seen).toBe(2);
  clock.advance(29_999);
  await new Promise((resolve) => setImmediate(resolve));
  expect(outcome).toEqual([]);
  clock.advance(1);
  await waiting;
  expect(outcome).toMatchObject([{ code: 'timeout', details: { execution: 'uncertain', reason: 'receipt' } }]);
  await link.close();
});

test('a connection lost between a deliver and its receipt leaves it uncertain; after it nothing is sent', async () => {
  let drop = () => {};
  const url = await scripted((frame, say) => {
    if (frame.kind === 'hello') say(welcome);
    if (frame.kind === 'subscribe') say({ kind: 'subscribed' });
    if (frame.kind === 'deliver') drop();
  });
  const link: WorkerLink = await openWorkerLink({ url, key: keyOf('alice'), clock: systemClock })(quiet, never);
  drop = () => {
    for (const close of closing.splice(0)) close();
  };
  await expect(link.send(request('a'))).rejects.toMatchObject({
    code: 'transport',
    details: { execution: 'uncertain' },
  });
  expect(await link.closed).toMatchObject({ code: 'transport' });
  await expect(link.send(request('b'))).rejects.toMatchObject({
    code: 'transport',
    details: { execution: 'not_executed' },
  });
});

test('what answers but is no broker is given up: silence, nonsense, a stream of bytes', async () => {
  const clock = new FakeClock();
  const silent = await scripted(() => {});
  const opening = openWorkerLink({ url: silent, key: keyOf('alice'), clock })(quiet, never).catch(
    (error: unknown) => error,
  );
  await eventually('a hello to be waited for', async () => {
    await clock.advanceAsync(1_000);
    return clock.nowMs() > 12_000;
  });
  expect(await opening).toMatchObject({ code: 'connect_failed', details: { execution: 'not_executed' } });
  await expect(
    openWorkerLink({ url: 'ws://127.0.0.1:1/broker', key: 'k', clock: systemClock })(quiet, never),
  ).rejects.toMatchObject({ code: 'connect_failed', details: { reason: 'ECONNREFUSED' } });
  const controller = new AbortController();
  controller.abort();
  await expect(
    openWorkerLink({ url: silent, key: 'k', clock: systemClock })(quiet, controller.signal),
  ).rejects.toMatchObject({ details: { reason: 'cancelled' } });
});

/** Passes bytes on until it is told to swallow them; connections stay open on both sides. */
async function blackHole(target: string): Promise<{ url: string; swallow(): void }> {
  let isOpen = true;
  const sockets: Socket[] = [];
  const { port, pathname } = new URL(target);
  const { connect } = await import('node:net');
  const server: Server = createServer((near) => {
    const far = connect(Number(port), '127.0.0.1');
    sockets.push(near, far);
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      from.on('data', (bytes) => isOpen && to.write(bytes));
      from.on('error', () => undefined);
      from.on('close', () => isOpen && to.destroy());
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closing.push(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return {
    url: `ws://127.0.0.1:${(server.address() as { port: number }).port}${pathname}`,
    swallow: () => {
      isOpen = false;
    },
  };
}

test('D-51 a connection that swallows everything is given up on both sides within 30 s, and its mail comes again', async () => {
  const clock = new FakeClock();
  const bench = await up({ clock });
  const hole = await blackHole(bench.url);
  const seen: string[] = [];
  const handlers = { deliver: ({ id }: { id: string }) => void seen.push(id), cancelled() {} };
  const deaf = await bench.host({ url: hole.url })(handlers, never);
  const alice = await bench.worker('alice')(quiet, never);
  await alice.send(request('a'));
  await eventually('the request', () => seen[0]);
  // Alive: pings are answered, and nobody is cut however long it lasts.
  for (let n = 0; n < 30; n++) {
    await clock.advanceAsync(5_000);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  expect(bench.broker.status().connections).toBe(2);
  hole.swallow();
  const fromMs = clock.nowMs();
  let isOver = false;
  void deaf.closed.then(() => {
    isOver = true;
  });
  for (let n = 0; n < 40 && (!isOver || bench.broker.status().connections > 1); n++) {
    await clock.advanceAsync(1_000);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  expect(clock.nowMs() - fromMs).toBeLessThanOrEqual(31_000);
  expect(isOver).toBe(true);
  expect(await deaf.closed).toMatchObject({ code: 'transport', details: { reason: 'silent' } });
  const next = await bench.host()(handlers, never);
  await eventually('the request again', () => seen.length === 2);
  expect(clock.nowMs() - fromMs).toBeLessThan(40_000);
  await next.close();
});

test('B7 links of one process have one name, and those of another have another', async () => {
  const bench = await up();
  const seen: boolean[] = [];
  const handlers = { deliver: ({ wasElsewhere }: Delivery) => void seen.push(wasElsewhere), cancelled() {} };
  const alice = await bench.worker('alice')(quiet, never);
  await alice.send(request('a'));
  const [own, other] = [bench.host(), bench.host()];
  for (const open of [own, own, other]) {
    const before = seen.length;
    const link = await open(handlers, never);
    await eventually('the request', () => seen.length > before);
    await link.close();
  }
  expect(seen).toEqual([false, false, true]);
  expect(() => openHostLink({ url: bench.url, clock: systemClock, key: 'k', instance: 'a b' })).toThrow('instance');
});

test('D-40 a host hears since when the broker knows what it held, if it lost its store, and only then', async () => {
  const store = Object.assign(new MemoryMailStore(), { beganAtMs: systemClock.date().getTime() - 60_000 });
  for (const lost of [true, false]) {
    const bench = await up(lost ? { store } : {});
    const seen: (Date | undefined)[] = [];
    const link = await bench.host()({ deliver: ({ heldSince }) => void seen.push(heldSince), cancelled() {} }, never);
    const alice = await bench.worker('alice')(quiet, never);
    await alice.send(request('a'));
    await eventually('the request', () => seen.length > 0);
    if (lost) expect(Math.abs((seen[0] as Date).getTime() - store.beganAtMs)).toBeLessThan(30_000);
    else expect(seen).toEqual([undefined]);
    await link.close();
  }
});

test('a cancel never overtakes its request', async () => {
  const bench = await up();
  const order: string[] = [];
  const link = await bench.host()(
    { deliver: ({ id }) => void order.push(`deliver ${id}`), cancelled: (_, id) => void order.push(`cancel ${id}`) },
    never,
  );
  const alice = await bench.worker('alice')(quiet, never);
  for (let n = 0; n < 50; n++) {
    const sent = alice.send(request(`r${n}`));
    alice.cancel(`r${n}`);
    await sent;
  }
  await alice.send(request('last'));
  await eventually('the last', () => order.includes('deliver last'));
  const wrong = order.filter(
    (each, at) => each.startsWith('cancel') && !order.slice(0, at).includes(each.replace('cancel', 'deliver')),
  );
  expect(wrong).toEqual([]);
  expect(order.filter((each) => each.startsWith('cancel')).length).toBe(order.length - 1 - (order.length - 1) / 2);
  await link.close();
});

test('a broker that stops says so, and what was sent before has its receipt', async () => {
  const bench = await up();
  const alice = await bench.worker('alice')(quiet, never);
  const sends = Array.from({ length: 50 }, (_, n) => alice.send(request(`r${n}`)));
  const sent = Promise.allSettled(sends);
  await sends[0];
  await bench.close();
  expect(await alice.closed).toMatchObject({ code: 'transport', details: { reason: 'going_away' } });
  const kept = (await sent).filter(({ status }) => status === 'fulfilled').length;
  expect(kept).toBeGreaterThan(0);
  expect((await bench.store.sizes())[0]?.count ?? 0).toBeGreaterThanOrEqual(kept);
});

test('a newer broker may say what nobody here knows', async () => {
  const url = await scripted((frame, say) => {
    if (frame.kind === 'hello') {
      say({ kind: 'weather', sun: true });
      say({ ...welcome, more: 1 });
    }
    if (frame.kind === 'subscribe') say({ kind: 'subscribed', more: {} });
  });
  const link = await openWorkerLink({ url, key: 'k', clock: systemClock })(quiet, never);
  expect(link.me.mailbox).toBe('alice');
  await link.close();
});
