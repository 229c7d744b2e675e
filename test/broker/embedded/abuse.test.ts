/** What somebody with a good key can take from others. */
import { expect, test } from 'vitest';
import { digestOf } from '../../../src/config/keys.js';
import { coreBench, type Frame, hostCredential, keyOf, worker } from './core-bench.js';

const ids = (frames: readonly Frame[]) => frames.map(({ id }) => id);

test('one who fills the window of the host with slow calls does not keep out another', async () => {
  const { client, settle, core } = await coreBench({ rate: undefined });
  const host = client().subscribed('host');
  const alice = client().hello('alice');
  for (let n = 0; n < 300; n++) alice.request(`a${n}`);
  await settle();
  expect(host.of('message').length).toBe(96);
  client().hello('bob').request('b');
  await settle();
  expect(ids(host.of('message').slice(96))).toEqual(['b']);
  // A place of its own that comes free is used.
  host.ack(host.of('message')[3] as Frame);
  await settle();
  expect(ids(host.of('message').slice(97))).toEqual(['a96']);
  expect(core.status().held).toBe(97);
});

test('the last tenth of a mailbox is not had by a few large messages either', async () => {
  const { client, settle } = await coreBench({ mailboxBytes: 100_000, rate: undefined }, [
    ...[worker('alice'), worker('bob'), worker('carol'), hostCredential],
  ]);
  const body = (bytes: number) => ({ x: 'x'.repeat(bytes - 8) });
  const alice = client().hello('alice');
  for (let n = 0; n < 30; n++) alice.request(`a${n}`, body(5_000));
  await settle();
  expect(alice.of('delivered').length).toBe(18);
  const bob = client()
    .hello('bob')
    .request('first', body(5_000))
    .request('large', body(1_000))
    .request('small', body(8));
  await settle();
  expect(ids(bob.of('delivered'))).toEqual(['first']);
  const carol = client().hello('carol');
  for (let n = 0; n < 5; n++) carol.request(`c${n}`, body(400));
  await settle();
  expect(ids(carol.of('delivered'))).toEqual(['c0', 'c1']);
});

test('the connections of one mailbox share one rate, also one after the other', async () => {
  const { client, settle, core } = await coreBench({ rate: { perSecond: 10, burst: 20 } });
  const held = () => core.status().mailboxes.find(({ mailbox }) => mailbox === 'host')?.count;
  for (let each = 0; each < 4; each++) {
    const alice = client().hello('alice');
    for (let n = 0; n < 20; n++) alice.request(`${each}-${n}`);
    await settle();
    if (each > 1) alice.reader.ended('closed with 1000');
  }
  expect(held()).toBe(20);
  client().hello('bob').request('b');
  await settle();
  expect(held()).toBe(21);
});

test('a key has eight connections, and the ninth is told to come later', async () => {
  const { client, settle, core } = await coreBench({}, [
    ...[worker('alice'), worker('alice', { name: 'alice-new', digest: digestOf(keyOf('alice-new')) }), hostCredential],
  ]);
  const eight = Array.from({ length: 8 }, () => client().hello('alice'));
  const ninth = client().hello('alice');
  const other = client().hello('alice-new');
  await settle();
  expect(ninth.of('welcome')).toEqual([]);
  expect(ninth.of('error')).toMatchObject([{ error: { code: 'overloaded', reason: 'too_many_connections' } }]);
  expect(ninth.wire.closed).toBe('refused');
  expect(other.of('welcome')).toHaveLength(1);
  expect(core.status()).toMatchObject({ connections: 9, turnedAway: 1 });
  eight[0]?.reader.ended('closed with 1000');
  const again = client().hello('alice');
  await settle();
  expect(again.of('welcome')).toHaveLength(1);
});

test('strangers have places of their own, which they give back', async () => {
  const { client, settle, core } = await coreBench({ strangers: 3 });
  const strangers = [client(), client()];
  client().hello('alice');
  await settle();
  expect(core.hasRoom).toBe(true);
  strangers.push(client());
  expect(core.hasRoom).toBe(false);
  strangers[0]?.reader.ended('closed with 1006');
  expect(core.hasRoom).toBe(true);
  client();
  expect(core.hasRoom).toBe(false);
  strangers[1]?.hello('bob');
  await settle();
  expect(core.hasRoom).toBe(true);
});

test.each(['ack', 'release'])(
  'who says %s of what it does not hold pays for it, and is cut past hundreds',
  async (kind) => {
    const { client, settle, core, clock } = await coreBench({ rate: { perSecond: 10, burst: 100 }, leaseMs: 1e9 });
    const alice = client().subscribed('alice');
    const wrong = (count: number) => {
      for (let n = 0; n < count; n++) alice.say({ kind, seq: 7, lease: 'x', delayMs: 0, reason: 'no' });
    };
    wrong(100);
    alice.request('late');
    await settle();
    expect(alice.of('delivered')).toEqual([]);
    await clock.advanceAsync(200);
    expect(ids(alice.of('delivered'))).toEqual(['late']);
    wrong(1_000);
    await settle();
    expect(alice.wire.closed).toBe('too_fast');
    expect(core.status().fenced).toBeLessThan(600);
  },
);

test('news are not kept for who does not read past its buffer', async () => {
  const { client, settle } = await coreBench({ outboundBytes: 100_000 });
  const host = client().subscribed('host');
  const stuck = client().subscribed('alice');
  await settle();
  stuck.wire.isReading = false;
  for (let n = 0; n < 20; n++) host.say({ kind: 'tell', to: 'alice', body: { x: 'x'.repeat(30_000) } });
  await settle();
  expect(stuck.wire.bufferedMax).toBeGreaterThan(60_000);
  expect(stuck.wire.bufferedMax).toBeLessThanOrEqual(100_000);
});

test('a reply that nobody takes is dropped and told, and is no dead letter', async () => {
  const { client, settle, core, events, store } = await coreBench({ deliveries: 2 });
  const host = client().subscribed('host');
  host.say({ kind: 'deliver', id: 'r', type: 'reply', to: 'alice', body: {} });
  await settle();
  for (let n = 0; n < 2; n++) {
    const alice = client().subscribed('alice');
    await settle();
    expect(ids(alice.of('message'))).toEqual(['r']);
    alice.reader.ended('closed with 1006');
    await settle();
  }
  expect(await core.deadLetters()).toEqual([]);
  expect(core.status().deadLetters).toBe(0);
  expect(events).toContainEqual(expect.objectContaining({ kind: 'dropped', id: 'r', reason: 'not_taken' }));
  expect(await store.sizes()).toEqual([]);
});

test('a mailbox more than half full is not read from the disk again and again', async () => {
  const { client, settle, store } = await coreBench({ mailboxMessages: 100, rate: undefined, hostWindow: 1 });
  const alice = client().hello('alice');
  for (let n = 0; n < 60; n++) alice.request(`a${n}`);
  const host = client().subscribed('host');
  await settle();
  host.reader.ended('closed with 1006');
  await settle();
  const { reads } = store;
  const next = client().subscribed('host');
  await settle();
  // One page for the bodies, and none to learn what there is.
  expect(store.reads - reads).toBe(1);
  expect(ids(next.of('message'))).toEqual(['a0']);
  alice.request('one-more');
  await settle();
  expect((await store.sizes())[0]?.count).toBe(61);
});
