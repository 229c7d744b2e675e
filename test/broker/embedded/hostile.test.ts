/** Thousands of frames that nobody should send, over real sockets, while others are served. */
import { expect, test } from 'vitest';
import { digestOf } from '../../../src/config/keys.js';
import { seededRandom } from '../../../src/kernel/random.js';
import { eventually } from '../../eventually.js';
import { countFor } from '../../tier.js';
import { keyOf } from './core-bench.js';
import { hostileFrame } from './hostile-frames.js';
import { RawSocket, socketBench } from './socket-bench.js';

const frames = countFor(2_000, 10_000);
const seed = Number(process.env.SEED ?? 4_711);
const never = new AbortController().signal;

test(`D-53 ${frames} bad frames: all refused, nothing delivered, others served meanwhile, nothing secret told`, {
  timeout: 180_000,
}, async () => {
  const random = seededRandom(seed);
  const bench = await socketBench({ limits: { rate: undefined } });
  const { url, broker, events, store } = bench;
  const handed: string[] = [];
  const cancelled: string[] = [];
  const host = await bench.host()(
    {
      deliver: ({ id, from, reply, ack }) => {
        handed.push(`${from.mailbox} ${from.role} ${id}`);
        reply('{}').then(ack, ack);
      },
      cancelled: (_, id) => void cancelled.push(id),
    },
    never,
  );
  const taken: string[] = [];
  const bob = await bench.worker('bob')(
    { replied: (id) => void taken.push(id), told: () => void taken.push('told') },
    never,
  );
  let isOver = false;
  let good = 0;
  const serving = (async () => {
    for (; !isOver; good++) {
      await bob.send({ id: `good-${good}`, body: Buffer.from('{}'), ttlMs: 60_000 });
      await eventually('an answer', () => taken.length > good);
    }
  })();

  const told: string[] = [];
  let evil = (await RawSocket.open(url)).hello('alice');
  let turnedAway = 0;
  for (let n = 0; n < frames; n++) {
    // One in ten ends its connection; of those that begin one, as many are refused at the hello.
    const hostile = hostileFrame(random, n, n % 10 === 9);
    if (n % 100 === 50) {
      const stranger = await RawSocket.open(url);
      stranger.socket.send(hostile.bytes, { binary: hostile.isBinary });
      await eventually('a refusal', () => stranger.closed);
      expect([hostile.what, stranger.frames.length]).toEqual([hostile.what, 1]);
      told.push(JSON.stringify(stranger.frames));
      turnedAway++;
      continue;
    }
    evil.socket.send(hostile.bytes, { binary: hostile.isBinary });
    if (!hostile.cuts) continue;
    const one = evil;
    await eventually(`the end after ${hostile.what}: ${hostile.bytes}`, () => one.closed);
    told.push(JSON.stringify(evil.frames));
    evil = (await RawSocket.open(url)).hello('alice');
  }
  await eventually('all to be refused', () => broker.status().refused === frames - turnedAway, 60_000);
  evil.socket.terminate();
  isOver = true;
  await serving;

  expect(broker.status()).toMatchObject({ refused: frames - turnedAway, turnedAway, deadLetters: 0 });
  expect(handed).toEqual(Array.from({ length: good }, (_, n) => `bob researcher good-${n}`));
  expect(good).toBeGreaterThan(20);
  expect(cancelled).toEqual([]);
  expect(taken).toEqual(Array.from({ length: good }, (_, n) => `good-${n}`));
  expect(await store.sizes()).toEqual([]);
  const said = [JSON.stringify(events), JSON.stringify(broker.status()), ...told].join('\n');
  for (const name of ['alice', 'bob', 'host']) {
    expect(said.includes(keyOf(name))).toBe(false);
    expect(said.includes(digestOf(keyOf(name)))).toBe(false);
  }
  expect(said.includes('evil-')).toBe(true);
  await bob.close();
  await host.close();
  await bench.close();
});

test('D-46 a frame that was taken once does nothing when it is played again', async () => {
  const bench = await socketBench();
  const first = (await RawSocket.open(bench.url)).hello('host').say({ kind: 'subscribe' });
  const alice = await bench.worker('alice')({ replied() {}, told() {} }, never);
  await alice.send({ id: 'a', body: Buffer.from('{}'), ttlMs: 60_000 });
  const message = await eventually('it', () => first.frames.find(({ kind }) => kind === 'message'));
  const ack = { kind: 'ack', seq: message.seq, lease: message.lease };
  first.socket.terminate();
  // The same words on a connection that has the mailbox now.
  const second = (await RawSocket.open(bench.url)).hello('host').say({ kind: 'subscribe' });
  await eventually('it again', () => second.frames.find(({ kind }) => kind === 'message'));
  second.say(ack);
  await eventually('a refusal', () => bench.broker.status().fenced === 1);
  expect((await bench.store.sizes())[0]?.count).toBe(1);
  // And a deliver: the same message, held once.
  const deliver = { kind: 'deliver', id: 'a', type: 'request', to: 'host', body: {} };
  const copy = (await RawSocket.open(bench.url)).hello('alice').say(deliver).say(deliver);
  await eventually('receipts', () => copy.frames.filter(({ kind }) => kind === 'delivered').length === 2);
  expect((await bench.store.sizes())[0]?.count).toBe(1);
  await bench.close();
});
