/** What is handed out has one holder at a time, and comes again until it is finished or given up. */
import { expect, test } from 'vitest';
import { HostError } from '../../../src/kernel/errors.js';
import { MemoryMailStore } from '../../fakes/memory-mail-store.js';
import { type CoreBench, coreBench, type Frame, hostCredential, worker } from './core-bench.js';

const first = (frames: readonly Frame[]): Frame => frames[0] as Frame;

test('B7 a late ack or release of a replaced connection is refused and counted, and the message stays the new one’s', async () => {
  const { client, settle, core, store } = await coreBench();
  const old = client().subscribed('host');
  client().hello('alice').request('a');
  await settle();
  const late = first(old.of('message'));
  const next = client().subscribed('host');
  await settle();
  expect(old.wire.closed).toBe('replaced');
  const held = first(next.of('message'));
  expect(held).toMatchObject({ id: 'a', deliveries: 2, seq: late.seq });
  expect(held.lease).not.toBe(late.lease);
  // On the old connection nothing is heard any more; on the new one the old lease is nobody's.
  old.ack(late);
  next.ack(late).say({ kind: 'release', seq: late.seq, lease: late.lease, delayMs: 0, reason: 'late' });
  old.reader.ended('closed with 1006');
  await settle();
  expect(core.status()).toMatchObject({ fenced: 2, held: 1 });
  expect(next.of('error')).toMatchObject([{ error: { reason: 'lease_lost' } }, { error: { reason: 'lease_lost' } }]);
  expect(next.wire.closed).toBeUndefined();
  next.ack(held);
  await settle();
  expect(await store.sizes()).toEqual([]);
  // A second time, and somebody else's number.
  next.ack(held).say({ kind: 'ack', seq: 4711, lease: held.lease });
  await settle();
  expect(core.status()).toMatchObject({ fenced: 4, held: 0 });
});

test('B7 a host hears whether anybody but itself had a request before, also when the broker forgot that', async () => {
  const store = new MemoryMailStore();
  const { client, settle } = await coreBench({}, undefined, store);
  const handedTo = async (at: CoreBench['client'], instance?: string): Promise<Frame> => {
    const host = at().hello('host', { instance }).say({ kind: 'subscribe' });
    await settle();
    host.reader.ended('closed with 1006');
    await settle();
    return first(host.of('message'));
  };
  client().hello('alice').request('a');
  await settle();
  for (const time of ['first', 'again over the next connection']) {
    const handed = await handedTo(client, 'one');
    expect([time, handed]).toMatchObject([time, { deliveries: 1 }]);
    expect(handed).not.toHaveProperty('wasElsewhere');
  }
  const restarted = await coreBench({}, undefined, store);
  expect(await handedTo(restarted.client, 'one')).toMatchObject({ deliveries: 2, wasElsewhere: true });
});

test('B7 a host with a journal of its own is handed what the disk knows to be handed out', async () => {
  const store = new MemoryMailStore();
  const waiting: (() => void)[] = [];
  store.flush = () => new Promise((resolve) => waiting.push(resolve));
  const commit = () => {
    for (const resolve of waiting.splice(0)) resolve();
  };
  const { client, settle, core } = await coreBench({}, undefined, store);
  const host = client().hello('host', { instance: 'one' }).say({ kind: 'subscribe' });
  const alice = client().hello('alice');
  for (const id of ['a', 'b', 'c']) alice.request(id);
  await settle();
  expect([core.status().held, host.of('message').length]).toEqual([3, 0]);
  alice.say({ kind: 'cancel', id: 'b', to: 'host' });
  await settle();
  commit();
  await settle();
  expect(host.of('message').map(({ id }) => id)).toEqual(['a', 'b', 'c']);
  const cancelAt = host.wire.frames.findLastIndex(({ kind, id }) => kind === 'cancel' && id === 'b');
  expect(host.wire.frames[cancelAt + 1]).toMatchObject({ kind: 'message', id: 'b' });
  // Cut before the disk knew: whoever comes next has it, and the one that is gone never hears of it.
  alice.request('d');
  await settle();
  host.reader.ended('closed with 1006');
  commit();
  await settle();
  expect(host.of('message')).toHaveLength(3);
});

test('B7 what comes back to its holder before the disk knew of it waits for the disk, too, and is not counted again', async () => {
  const store = new MemoryMailStore();
  const flushes: { resolve: () => void; reject: (error: Error) => void }[] = [];
  store.flush = () => new Promise((resolve, reject) => flushes.push({ resolve, reject }));
  const { client, clock, settle, core } = await coreBench({}, undefined, store);
  const connect = () => client().hello('host', { instance: 'one' }).say({ kind: 'subscribe' });
  const before = connect();
  client().hello('alice').request('a');
  await settle();
  before.reader.ended('closed with 1006');
  const next = connect();
  await settle();
  expect([core.status().held, flushes.length, next.of('message')]).toEqual([1, 2, []]);
  flushes[0]?.resolve();
  await settle();
  expect([before.of('message'), next.of('message')]).toEqual([[], []]);
  // Not taken: it is a return the next time, too.
  flushes[1]?.reject(new HostError('insufficient_storage', 'full', { execution: 'not_executed' }));
  await settle();
  expect([core.status().held, next.of('message')]).toEqual([0, []]);
  await clock.advanceAsync(1_000);
  flushes[2]?.resolve();
  await settle();
  expect(next.of('message')).toMatchObject([{ id: 'a', deliveries: 1 }]);
  expect(await store.read('host', 0, { count: 1, bytes: 1_000 })).toMatchObject([{ deliveries: 1 }]);
});

test('B7 what could not be sent because the disk did not take the count is nobody’s, comes again, and does not die of it', async () => {
  const store = new MemoryMailStore();
  let isFull = true;
  let flushes = 0;
  store.flush = async () => {
    flushes++;
    if (isFull) throw new HostError('insufficient_storage', 'full', { execution: 'not_executed' });
  };
  const { client, clock, settle, core } = await coreBench({ hostWindow: 2 }, undefined, store);
  const host = client().hello('host', { instance: 'one' }).say({ kind: 'subscribe' });
  const alice = client().hello('alice');
  for (const id of ['a', 'b', 'c']) alice.request(id);
  await settle();
  expect([core.status().held, host.of('message')]).toEqual([0, []]);
  // Ever more slowly: after one second, two, four and so on.
  const before = flushes;
  await clock.advanceAsync(1_000 + 2_000 + 4_000);
  expect(flushes - before).toBeLessThan(10);
  expect([core.status().held, core.status().deadLetters]).toEqual([0, 0]);
  isFull = false;
  await clock.advanceAsync(8_000);
  await settle();
  expect([core.status().held, host.of('message').length]).toEqual([2, 2]);
  for (const message of host.of('message')) host.ack(message);
  await settle();
  const handed = host.of('message');
  expect(handed.map(({ id }) => id).sort()).toEqual(['a', 'b', 'c']);
  // Nobody had it before, and nobody is told otherwise.
  for (const message of handed) expect(message).toMatchObject({ deliveries: 1 });
  for (const message of handed) expect(message).not.toHaveProperty('wasElsewhere');
});

test('B7 a host that does not say who it is may be another each time', async () => {
  const { client, settle } = await coreBench();
  client().hello('alice').request('a');
  for (const wasElsewhere of [undefined, true]) {
    const host = client().subscribed('host');
    await settle();
    expect(first(host.of('message')).wasElsewhere).toBe(wasElsewhere);
    host.reader.ended('closed with 1006');
  }
});

/** Whose puts wait until they are let, or refused. */
class SlowStore extends MemoryMailStore {
  isSlow = false;
  goOn = () => {};

  override async put(...asked: Parameters<MemoryMailStore['put']>): ReturnType<MemoryMailStore['put']> {
    if (this.isSlow) await new Promise<void>((resolve) => (this.goOn = resolve));
    return super.put(...asked);
  }
}

test.each([
  ['is over with the answer', undefined, []],
  [
    'comes to the next one when the answer is refused',
    new HostError('insufficient_storage', 'full', { execution: 'not_executed' }),
    ['a'],
  ],
  ['comes to nobody while nobody knows', new HostError('transport', 'failed', { execution: 'uncertain' }), []],
])('B7 a request whose host is cut while its answer is on its way to the disk %s', async (_, failure, comesAgain) => {
  const store = new SlowStore();
  const { client, settle } = await coreBench({}, undefined, store);
  const alice = client().subscribed('alice').request('a');
  const host = client().subscribed('host');
  await settle();
  const { seq, lease } = first(host.of('message'));
  store.isSlow = true;
  host.say({ kind: 'deliver', id: 'a', type: 'reply', to: 'alice', seq, lease, body: {} });
  await settle();
  host.reader.ended('closed with 1006');
  const next = client().subscribed('host');
  await settle();
  expect(next.of('message')).toEqual([]);
  store.failure = failure;
  store.goOn();
  await settle();
  expect(next.of('message').map(({ id }) => id)).toEqual(comesAgain);
  expect(alice.of('message')).toHaveLength(failure ? 0 : 1);
});

test('B7 a worker that sends again before it heard its reply is not run a second time', async () => {
  const { client, settle, core } = await coreBench();
  const alice = client().hello('alice').request('a');
  const host = client().subscribed('host');
  await settle();
  const { seq, lease } = first(host.of('message'));
  host.say({ kind: 'deliver', id: 'a', type: 'reply', to: 'alice', seq, lease, body: {} });
  await settle();
  alice.request('a').say({ kind: 'subscribe' });
  await settle();
  expect([alice.of('delivered').length, host.of('message').length]).toEqual([2, 1]);
  expect(core.status().mailboxes).toMatchObject([{ mailbox: 'host', count: 0 }, { count: 1 }]);
  // Who asks again after it heard is a new asker.
  alice.ack(first(alice.of('message'))).request('a');
  await settle();
  expect(host.of('message').map(({ id }) => id)).toEqual(['a', 'a']);
});

test('a mailbox that could not take the word that its request was given up is not remembered for it', async () => {
  const { client, settle, core, store } = await coreBench({ deliveries: 1 });
  const alice = client().hello('alice').request('a');
  const host = client().subscribed('host');
  await settle();
  alice.reader.ended('closed with 1006');
  store.failure = new HostError('insufficient_storage', 'full', { execution: 'not_executed' });
  host.reader.ended('closed with 1006');
  await settle();
  expect(core.status()).toMatchObject({ mailboxes: [], deadLetters: 1 });
});

test('a worker cannot end what another holds', async () => {
  const { client, settle, core } = await coreBench();
  const host = client().subscribed('host');
  const alice = client().subscribed('alice').request('a');
  await settle();
  alice.ack(first(host.of('message')));
  await settle();
  expect(core.status()).toMatchObject({ fenced: 1, held: 1 });
});

test('a connection that is not heard of for a lease is over, and what it held comes to the next', async () => {
  const { client, clock, settle } = await coreBench();
  const silent = client().subscribed('host');
  client().hello('alice').request('a');
  await settle();
  clock.advance(25_000);
  silent.reader.heard();
  clock.advance(29_999);
  expect(silent.wire.closed).toBeUndefined();
  clock.advance(1);
  expect(silent.wire.closed).toBe('silent');
  const next = client().subscribed('host');
  await settle();
  expect(next.of('message')).toMatchObject([{ id: 'a', deliveries: 2 }]);
});

test('what is given back rests for twice as long each time, at least as long as was asked, and at most a minute', async () => {
  const { client, clock, settle } = await coreBench({ deliveries: 10, leaseMs: 1e9 });
  const host = client().subscribed('host');
  client().hello('alice').request('a');
  await settle();
  const waits: number[] = [];
  for (const delayMs of [0, 5_000, 0, 0, 0, 0, 0, 3_000_000]) {
    const { length } = host.of('message');
    const { seq, lease } = host.of('message').at(-1) as Frame;
    host.say({ kind: 'release', seq, lease, delayMs, reason: 'busy' });
    const fromMs = clock.nowMs();
    await settle();
    while (host.of('message').length === length) {
      clock.advance(500);
      await settle();
    }
    waits.push(clock.nowMs() - fromMs);
  }
  expect(waits).toEqual([1_000, 5_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
});

test('B10 five deliveries, then a dead letter with every reason; the queue goes on; an operator revives it once', async () => {
  const { client, clock, settle, core, events } = await coreBench({ leaseMs: 1e9 });
  const alice = client().subscribed('alice').request('poison').request('good');
  await settle();
  for (let n = 1; n <= 3; n++) {
    const host = client().subscribed('host');
    await settle();
    expect(host.of('message')[0]).toMatchObject({ id: 'poison', deliveries: n });
    const good = host.of('message').find(({ id }) => id === 'good');
    if (good) host.ack(good);
    host.reader.ended('closed with 1006');
  }
  const host = client().subscribed('host');
  for (const reason of ['first release', 'second release']) {
    await settle();
    const { seq, lease } = host.of('message').at(-1) as Frame;
    host.say({ kind: 'release', seq, lease, delayMs: 0, reason });
    clock.advance(60_000);
  }
  await settle();
  expect(host.of('message').map(({ deliveries }) => deliveries)).toEqual([4, 5]);
  const [letter] = await core.deadLetters();
  const call = { seq: letter?.seq, mailbox: 'alice', id: letter?.id, sentAtMs: letter?.sentAtMs };
  expect(await core.deadCalls()).toEqual([call]);
  const lost = 'connection lost: closed with 1006';
  expect(letter).toMatchObject({ id: 'poison', reasons: [lost, lost, lost, 'first release', 'second release'] });
  expect(events.filter(({ kind }) => kind === 'dead_letter')).toHaveLength(1);
  expect(core.status()).toMatchObject({ deadLetters: 1, redeliveries: 4 });
  // Its worker hears so at once.
  expect(alice.of('message')).toMatchObject([
    { id: 'poison', type: 'reply', from: { mailbox: 'host' }, body: { error: { code: 'outcome_uncertain' } } },
  ]);
  alice.request('after');
  await settle();
  expect(host.of('message').at(-1)).toMatchObject({ id: 'after' });

  const revived = await Promise.all([1, 2, 3].map(() => core.revive(letter?.seq as number)));
  await settle();
  expect(revived.filter(Boolean)).toHaveLength(1);
  expect(host.of('message').filter(({ id, deliveries }) => id === 'poison' && deliveries === 1)).toHaveLength(1);
  expect(core.status().deadLetters).toBe(0);
});

test('what was handed out five times before the broker fell is not handed out again', async () => {
  const { store, client, settle } = await coreBench();
  client().hello('alice').request('a').request('b');
  await settle();
  for (let n = 0; n < 5; n++) store.handedOut(1);
  const next = await coreBench({}, undefined, store);
  const host = next.client().subscribed('host');
  await next.settle();
  expect(host.of('message').map(({ id }) => id)).toEqual(['b']);
  expect(await next.core.deadLetters()).toMatchObject([{ id: 'a', reasons: [expect.stringContaining('5 times')] }]);
});

test('an expired request comes to the host as expired; what was over a day ago is dropped, and told', async () => {
  const { client, clock, settle, events } = await coreBench({ leaseMs: 1e12 });
  const alice = client().hello('alice');
  alice.request('old');
  await settle();
  clock.advance(24 * 3_600_000 + 60_000 + 1);
  alice.say({ kind: 'deliver', id: 'late', type: 'request', to: 'host', ttlMs: 1_000, body: {} });
  await settle();
  clock.advance(5_000);
  const host = client().subscribed('host');
  await settle();
  expect(host.of('message')).toMatchObject([{ id: 'late', deadlineMs: -4_000 }]);
  expect(events.filter(({ kind }) => kind === 'dropped')).toMatchObject([{ id: 'old', mailbox: 'host' }]);
});

test('replies that a worker never fetched go after a day, also with nobody there', async () => {
  const { client, clock, settle, store, core } = await coreBench({ leaseMs: 1e12 });
  const host = client().subscribed('host');
  host.say({ kind: 'deliver', id: 'a', type: 'reply', to: 'alice', body: {} });
  await settle();
  clock.advance(23 * 3_600_000);
  await settle();
  expect(await store.sizes()).toMatchObject([{ mailbox: 'alice', count: 1 }]);
  await clock.advanceAsync(2 * 3_600_000 + 1);
  await settle();
  expect(await store.sizes()).toEqual([]);
  expect(core.status().mailboxes.map(({ mailbox }) => mailbox)).toEqual(['host']);
});

test('D-47 a reply is acknowledged when it was taken, and then leaves nothing, in memory nor on disk', async () => {
  const { client, settle, store, core } = await coreBench();
  const host = client().subscribed('host');
  const alice = client().subscribed('alice');
  host.say({ kind: 'deliver', id: 'a', type: 'reply', to: 'alice', body: {} });
  await settle();
  alice.ack(first(alice.of('message')));
  await settle();
  expect(await store.sizes()).toEqual([]);
  alice.reader.ended('closed with 1000');
  expect(core.status().mailboxes.map(({ mailbox }) => mailbox)).toEqual(['host']);
});

test('AC-BR15 a message that cannot be read any more is told, and those behind it are delivered', async () => {
  const { client, settle, store, events, core } = await coreBench({ keptBytesOfOne: 0 });
  client().hello('alice').request('a').request('b').request('c');
  await settle();
  const other = worker('other');
  const next = await coreBench({}, [worker('alice'), other, hostCredential], store);
  store.damaged.add(2);
  const host = next.client().subscribed('host');
  await next.settle();
  expect(host.of('message').map(({ id }) => id)).toEqual(['a', 'c']);
  expect(next.core.status().mailboxes).toMatchObject([{ mailbox: 'host', count: 2 }]);

  // Damaged between its reading and its turn.
  const third = await coreBench({ hostWindow: 1, keptBytesOfOne: 0 }, undefined, store);
  store.damaged.clear();
  const slow = third.client().subscribed('host');
  await third.settle();
  store.damaged.add(2);
  slow.ack(first(slow.of('message')));
  await third.settle();
  expect(slow.of('message').map(({ id }) => id)).toEqual(['a', 'c']);
  expect(third.events.filter(({ kind }) => kind === 'unreadable')).toMatchObject([{ id: 'b', mailbox: 'host' }]);
  expect(events).not.toContainEqual(expect.objectContaining({ kind: 'unreadable' }));
  expect(core.status().store).toBe('open');
});

test('D-43 an answer is the reply and the end of its request in one; who lost the request answers, and ends nothing', async () => {
  const { client, settle, core, store } = await coreBench();
  const old = client().subscribed('host');
  const alice = client().subscribed('alice').request('a');
  await settle();
  const late = first(old.of('message'));
  const answer = ({ seq, lease }: Frame) => ({
    ...{ kind: 'deliver', type: 'reply', to: 'alice', id: 'a', seq, lease, body: { ok: true } },
  });
  const next = client().subscribed('host');
  await settle();
  const held = first(next.of('message'));
  // With the lease of the connection before: the reply is taken, the request stays.
  next.say(answer(late));
  await settle();
  expect(core.status()).toMatchObject({ fenced: 1, held: 2 });
  alice.ack(first(alice.of('message')));
  next.say(answer(held));
  await settle();
  expect(next.of('delivered')).toHaveLength(2);
  expect(core.status()).toMatchObject({ fenced: 1, held: 1 });
  alice.ack(alice.of('message')[1] as Frame);
  await settle();
  expect([await store.sizes(), core.status().held]).toEqual([[], 0]);
});

test('a reply that is refused leaves its request with whoever holds it', async () => {
  const { client, settle, core, store } = await coreBench();
  const host = client().subscribed('host');
  client().hello('alice').request('a');
  await settle();
  const { seq, lease } = first(host.of('message'));
  store.failure = new Error('no room');
  host.say({ kind: 'deliver', type: 'reply', to: 'alice', id: 'a', seq, lease, body: {} });
  await settle();
  expect(host.of('refused')).toHaveLength(1);
  expect(core.status()).toMatchObject({ held: 1 });
  store.failure = undefined;
  expect(await store.sizes()).toMatchObject([{ mailbox: 'host', count: 1 }]);
});
