/** Nobody takes more than its share: of memory, of the disk, of the host's time. */
import { expect, test } from 'vitest';
import { eventually } from '../../eventually.js';
import { coreBench, type Frame, hostCredential, worker } from './core-bench.js';

test('AC-BR6 who sends faster than it may is delayed, and nothing of it is lost', async () => {
  const { client, clock, settle, core } = await coreBench({ rate: { perSecond: 500, burst: 1_000 } });
  const alice = client().hello('alice');
  const ids = Array.from({ length: 3_000 }, (_, n) => `r${n}`);
  for (const id of ids) alice.request(id);
  await settle();
  const held = () => core.status().mailboxes[0]?.count;
  expect(held()).toBe(1_000);
  expect(alice.wire.isPaused).toBe(true);
  await clock.advanceAsync(1_000);
  expect(held()).toBe(1_500);
  await clock.advanceAsync(3_000);
  expect(held()).toBe(3_000);
  expect(alice.wire.isPaused).toBe(false);
  expect(alice.of('delivered').map(({ id }) => id)).toEqual(ids);
  expect(alice.of('refused')).toEqual([]);
});

test('AC-BR6 a host is not slowed down', async () => {
  const { client, settle } = await coreBench({ rate: { perSecond: 1, burst: 1 } });
  const host = client().subscribed('host');
  for (let n = 0; n < 50; n++) host.say({ kind: 'deliver', id: `r${n}`, type: 'reply', to: 'alice', body: {} });
  await settle();
  expect(host.of('delivered').length).toBe(50);
});

const bodyOf = (bytes: number) => ({ x: 'x'.repeat(bytes - '{"x":""}'.length) });

test('B9 a mailbox refuses at exactly its count and its bytes, by id, and takes again when there is room', async () => {
  const { client, settle } = await coreBench({ mailboxMessages: 100, mailboxBytes: 5_000 });
  const host = client().subscribed('host');
  const reply = (id: string, body: object = {}) => host.say({ kind: 'deliver', id, type: 'reply', to: 'alice', body });
  for (let n = 0; n < 150; n++) reply(`n${n}`);
  await settle();
  expect(host.of('delivered').length).toBe(100);
  expect(host.of('refused').map(({ id }) => id)).toEqual(Array.from({ length: 50 }, (_, n) => `n${n + 100}`));
  expect(host.of('refused')[0]).toMatchObject({
    error: { code: 'overloaded', reason: 'mailbox_full', execution: 'not_executed', retryable: true },
  });
  const alice = client().subscribed('alice');
  for (let taken = 0; taken < 100; ) {
    await settle();
    for (const message of alice.of('message').slice(taken)) alice.ack(message);
    taken = alice.of('message').length;
  }
  alice.reader.ended('closed with 1000');
  // 5,000 bytes: ten of 490 and then one of 100, not of 101.
  for (let n = 0; n < 10; n++) reply(`b${n}`, bodyOf(490));
  reply('over', bodyOf(101));
  reply('fits', bodyOf(100));
  reply('more', bodyOf(8));
  await settle();
  expect(
    host
      .of('refused')
      .slice(50)
      .map(({ id }) => id),
  ).toEqual(['over', 'more']);
  expect(host.of('delivered').length).toBe(111);
});

test.each([
  ['with a host', true],
  ['without one', false],
])('AC-BR7 who fills the mailbox of the host is refused before the others are, %s', async (_, hasHost) => {
  const { client, settle, core, store } = await coreBench({ mailboxMessages: 1_000, rate: undefined, hostWindow: 1 });
  if (hasHost) client().subscribed('host');
  const alice = client().hello('alice');
  for (let n = 0; n < 1_000; n++) alice.request(`n${n}`);
  await settle();
  expect(alice.of('delivered').length).toBe(900);
  const bob = client().hello('bob');
  for (let n = 0; n < 20; n++) bob.request(`n${n}`);
  await settle();
  expect(bob.of('delivered').length).toBe(10);
  // What is there already is no new one.
  alice.request('n0').request('n900');
  bob.request('n0');
  await settle();
  expect(alice.of('delivered').length).toBe(901);
  expect(alice.of('refused').length).toBe(101);
  expect(bob.of('delivered').length).toBe(11);
  expect(core.status().mailboxes).toMatchObject([{ mailbox: 'host', count: 910 }]);
  if (!hasHost) expect(store.reads).toBeLessThan(50);
});

test('D-43 the full mailbox of one worker costs the host one refusal, and nobody else anything', async () => {
  const { client, settle } = await coreBench({ mailboxMessages: 2 });
  const host = client().subscribed('host');
  const bob = client().subscribed('bob');
  for (const id of ['a', 'b', 'c']) host.say({ kind: 'deliver', id, type: 'reply', to: 'alice', body: {} });
  host.say({ kind: 'deliver', id: 'c', type: 'reply', to: 'bob', body: { for: 'bob' } });
  await settle();
  expect(host.of('refused')).toMatchObject([{ id: 'c', to: 'alice', error: { reason: 'mailbox_full' } }]);
  expect(host.of('delivered').map(({ id, to }) => [id, to])).toEqual([
    ['a', 'alice'],
    ['b', 'alice'],
    ['c', 'bob'],
  ]);
  expect(host.wire.closed).toBeUndefined();
  expect(bob.of('message')).toMatchObject([{ id: 'c', body: { for: 'bob' } }]);
});

test('D-43 a reply that cannot be read is refused by its id, and the host goes on', async () => {
  const { client, settle } = await coreBench();
  const host = client().subscribed('host');
  const deep = `${'['.repeat(200)}${']'.repeat(200)}`;
  host.say(`{"kind":"deliver","id":"deep","type":"reply","to":"alice","body":{"x":${deep}}}`);
  host.say(`{"kind":"deliver","id":"many","type":"reply","to":"alice","body":{"x":[${'1,'.repeat(150_000)}1]}}`);
  await settle();
  expect(host.of('refused')).toMatchObject([{ id: 'deep', error: { code: 'invalid_request', field: 'body' } }]);
  expect(host.of('delivered')).toMatchObject([{ id: 'many' }]);
  const alice = client().hello('alice');
  alice.say(`{"kind":"deliver","id":"many","type":"request","to":"host","body":{"x":[${'1,'.repeat(150_000)}1]}}`);
  await settle();
  expect(alice.of('refused')).toMatchObject([{ id: 'many', error: { field: 'body' } }]);
  expect(alice.wire.closed).toBeUndefined();
});

test('no more than the window is handed out, and as much again as is acknowledged', async () => {
  const { client, settle, core } = await coreBench({ rate: undefined, hostWindowOfOne: 256 });
  const alice = client().hello('alice');
  for (let n = 0; n < 300; n++) alice.request(`r${n}`);
  const host = client().subscribed('host');
  await settle();
  expect(host.of('message').length).toBe(256);
  host.ack(host.of('message')[7] as Frame);
  await settle();
  expect(host.of('message').length).toBe(257);
  expect(core.status().held).toBe(256);
  const bob = client().subscribed('bob');
  for (let n = 0; n < 100; n++) host.say({ kind: 'deliver', id: `r${n}`, type: 'reply', to: 'bob', body: {} });
  await settle();
  expect(bob.of('message').length).toBe(64);
});

test('K8 one who floods 10,000 does not delay another’s one by more than a place', async () => {
  const credentials = [worker('flood'), ...Array.from({ length: 9 }, (_, n) => worker(`w${n}`)), hostCredential];
  const { client, settle } = await coreBench({ rate: undefined, hostWindow: 16 }, credentials);
  const host = client().subscribed('host');
  const flood = client().hello('flood');
  for (let n = 0; n < 10_000; n++) flood.request(`f${n}`);
  for (let n = 0; n < 9; n++) client().hello(`w${n}`).request('one');
  const answers = () => flood.of('delivered').length + flood.of('refused').length;
  await eventually('the flood to be answered', () => settle().then(() => answers() === 10_000));
  expect(flood.of('refused').length).toBeLessThan(1_100);
  // As places come free, one after the other.
  for (let n = 0; n < 20; n++) {
    host.ack(host.of('message')[n] as Frame);
    await settle();
  }
  const order = host.of('message').map(({ from }) => (from as { mailbox: string }).mailbox);
  expect(order.slice(0, 16)).toEqual(Array.from({ length: 16 }, () => 'flood'));
  // Nine others, and in their round one place of the flood.
  expect(new Set(order.slice(16, 26))).toEqual(new Set(['flood', ...Array.from({ length: 9 }, (_, n) => `w${n}`)]));
});

test('B8 who does not read is sent no more than its buffer, cut after ten seconds, and its messages stay', async () => {
  const { client, clock, settle, core, events, store } = await coreBench({ rate: undefined, leaseMs: 1e9 });
  const host = client().subscribed('host');
  const stuck = client().subscribed('alice');
  const bob = client().subscribed('bob');
  await settle();
  stuck.wire.isReading = false;
  const body = { x: 'x'.repeat(1_000_000) };
  for (let n = 0; n < 20; n++) {
    host.say({ kind: 'deliver', id: `r${n}`, type: 'reply', to: 'alice', body });
    host.say({ kind: 'deliver', id: `r${n}`, type: 'reply', to: 'bob', body });
    await settle();
    for (const message of bob.of('message').slice(n)) bob.ack(message);
  }
  await settle();
  expect(stuck.wire.bufferedBytes).toBeGreaterThan(3_000_000);
  expect(stuck.wire.bufferedMax).toBeLessThanOrEqual(4 * 1024 * 1024);
  expect(stuck.wire.isPaused).toBe(true);
  expect(bob.of('message').length).toBe(20);
  clock.advance(9_000);
  expect(stuck.wire.closed).toBeUndefined();
  clock.advance(1_000);
  expect(stuck.wire.closed).toBe('slow_consumer');
  await settle();
  expect(events).toContainEqual(expect.objectContaining({ kind: 'disconnected', reason: 'slow_consumer' }));
  expect(await store.sizes()).toMatchObject([{ mailbox: 'alice', count: 20 }]);
  const back = client().subscribed('alice');
  await eventually('all of it', () => settle().then(() => back.of('message').length === 20));
  expect(new Set(back.of('message').map(({ id }) => id)).size).toBe(20);
  expect(core.status().deadLetters).toBe(0);
});

test('B8 who reads again in time is not cut, and gets the rest', async () => {
  const { client, clock, settle } = await coreBench({ leaseMs: 1e9 });
  const host = client().subscribed('host');
  const slow = client().subscribed('alice');
  await settle();
  slow.wire.isReading = false;
  for (let n = 0; n < 8; n++)
    host.say({ kind: 'deliver', id: `r${n}`, type: 'reply', to: 'alice', body: { x: 'x'.repeat(1_000_000) } });
  await settle();
  clock.advance(9_999);
  slow.wire.isReading = true;
  slow.wire.drain();
  await settle();
  clock.advance(60_000);
  await settle();
  expect(slow.wire.closed).toBeUndefined();
  expect(slow.wire.isPaused).toBe(false);
  expect(slow.of('message').map(({ id }) => id)).toEqual(Array.from({ length: 8 }, (_, n) => `r${n}`));
});

test('news wait for nobody: at most 64 are on their way, and who does not read misses the rest', async () => {
  const { client, settle } = await coreBench();
  const host = client().subscribed('host');
  const stuck = client().subscribed('alice');
  await settle();
  stuck.wire.isReading = false;
  for (let n = 0; n < 200; n++) host.say({ kind: 'tell', to: 'alice', body: { n } });
  await settle();
  stuck.wire.isReading = true;
  stuck.wire.drain();
  host.say({ kind: 'tell', body: { n: 'last' } });
  await settle();
  const told = stuck.of('told').map(({ body }) => (body as { n: unknown }).n);
  expect(told).toEqual([...Array.from({ length: 64 }, (_, n) => n), 'last']);
});

test('bodies of what waits are not in memory: they are read when it is their turn, in pages', async () => {
  const { client, settle, store, core } = await coreBench({
    ...{ rate: undefined, hostWindow: 4, keptBytesOfOne: 10_000 },
    page: { count: 16, bytes: 100_000 },
  });
  const host = client().subscribed('host');
  const alice = client().hello('alice');
  for (let n = 0; n < 200; n++) alice.request(`r${n}`, { n, x: 'x'.repeat(1_000) });
  await settle();
  for (let n = 0; n < 200; n++) {
    const message = host.of('message')[n] as Frame;
    expect([message?.id, (message?.body as { n: number } | undefined)?.n]).toEqual([`r${n}`, n]);
    host.ack(message);
    await settle();
  }
  expect(store.reads).toBeGreaterThan(5);
  expect(store.reads).toBeLessThan(60);
  expect(core.status().mailboxes).toMatchObject([{ mailbox: 'host', count: 0, bytes: 0, held: 0 }]);
});

test('mail that comes while a mailbox is read from the disk is handed out once, in order', async () => {
  const { client, settle, store } = await coreBench({ rate: undefined, page: { count: 3, bytes: 100_000 } });
  const alice = client().hello('alice');
  for (let n = 0; n < 20; n++) alice.request(`r${n}`);
  await settle();
  const host = client().subscribed('host');
  for (let n = 20; n < 40; n++) {
    alice.request(`r${n}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
  for (let n = 0; n < 5; n++) await settle();
  expect(host.of('message').map(({ id }) => id)).toEqual(Array.from({ length: 40 }, (_, n) => `r${n}`));
  // Given up while it is read, and begun again.
  host.reader.ended('closed with 1006');
  const brief = client().subscribed('host');
  await new Promise((resolve) => setImmediate(resolve));
  brief.reader.ended('closed with 1006');
  const last = client().subscribed('host');
  for (let n = 0; n < 5; n++) await settle();
  expect(new Set(last.of('message').map(({ id }) => id)).size).toBe(40);
  expect(last.of('message').length).toBe(40);
  expect((await store.sizes())[0]?.count).toBe(40);
});

test('D-45 a cancel that comes while no host is there holds: what it is about is gone, on disk too', async () => {
  const { client, settle, core, store } = await coreBench();
  const alice = client().hello('alice').request('a').request('b');
  client().hello('bob').request('a');
  await settle();
  alice.say({ kind: 'cancel', to: 'host', id: 'a' }).say({ kind: 'cancel', to: 'host', id: 'never-sent' });
  await settle();
  expect(core.status().mailboxes).toMatchObject([{ mailbox: 'host', count: 2 }]);
  expect((await store.sizes())[0]).toMatchObject({ count: 2 });
  const host = client().subscribed('host');
  await settle();
  expect(host.of('message').map(({ id, from }) => [id, (from as { mailbox: string }).mailbox])).toEqual([
    ['b', 'alice'],
    ['a', 'bob'],
  ]);
  expect(host.of('cancel')).toEqual([]);
});

test('D-45 the last request that is cancelled leaves no mailbox behind', async () => {
  const { client, settle, core } = await coreBench();
  const alice = client().hello('alice').request('a');
  await settle();
  alice.say({ kind: 'cancel', to: 'host', id: 'a' });
  await settle();
  expect(core.status().mailboxes).toEqual([]);
});

test.each([
  ['in the same broker', false],
  ['in one that was started again', true],
])('D-45 who gets what was handed out and cancelled hears first that nobody waits, %s', async (_, isRestarted) => {
  const before = await coreBench();
  const { settle, store } = before;
  before.client().hello('alice').request('a').request('b');
  const lost = before.client().subscribed('host');
  await settle();
  lost.reader.ended('closed with 1006');
  const { client } = isRestarted ? await coreBench({}, undefined, store) : before;
  const alice = client().hello('alice');
  for (const id of ['a', 'b']) alice.say({ kind: 'cancel', to: 'host', id });
  await settle();
  // Whoever sends it again wants it again.
  alice.request('b');
  await settle();
  const host = client().subscribed('host');
  await settle();
  const heard = host.wire.frames.filter(({ kind }) => kind === 'cancel' || kind === 'message');
  expect(heard.map(({ kind, id }) => `${kind} ${id}`)).toEqual(['cancel a', 'message a', 'message b']);
});

test('D-45 a cancel that comes while the mailbox is read finds what was not read yet', async () => {
  const { client, settle, core } = await coreBench({ page: { count: 1, bytes: 1_000_000 } });
  const alice = client().hello('alice');
  for (const id of ['a', 'b', 'c']) alice.request(id);
  await settle();
  const host = client().subscribed('host');
  alice.say({ kind: 'cancel', to: 'host', id: 'c' });
  await settle();
  expect(host.of('message').map(({ id }) => id)).toEqual(['a', 'b']);
  expect(core.status().mailboxes).toMatchObject([{ mailbox: 'host', count: 2 }]);
  // The key itself is not the cancelled one's for ever.
  alice.request('c');
  await settle();
  expect(host.of('message').map(({ id }) => id)).toEqual(['a', 'b', 'c']);
});

test('D-45 a cancel of what is over already does not stop the same key from being sent anew', async () => {
  const { client, settle } = await coreBench();
  const alice = client().hello('alice').request('other');
  await settle();
  alice.say({ kind: 'cancel', to: 'host', id: 'a' }).request('a');
  await settle();
  const host = client().subscribed('host');
  await settle();
  expect(host.of('message').map(({ id }) => id)).toEqual(['other', 'a']);
});

test('AC-BR8 a request that still waits is taken back by its cancel; another’s is not', async () => {
  const { client, settle, store } = await coreBench({ hostWindow: 1 });
  const host = client().subscribed('host');
  const [alice, bob] = [client().subscribed('alice'), client().subscribed('bob')];
  alice.request('running').request('waiting');
  await settle();
  bob.say({ kind: 'cancel', to: 'host', id: 'waiting' });
  await settle();
  expect((await store.sizes())[0]?.count).toBe(2);
  alice.say({ kind: 'cancel', to: 'host', id: 'waiting' }).say({ kind: 'cancel', to: 'host', id: 'running' });
  await settle();
  expect((await store.sizes())[0]?.count).toBe(1);
  host.ack(host.of('message')[0] as Frame);
  await settle();
  expect(host.of('message').map(({ id }) => id)).toEqual(['running']);
  expect(host.of('cancel').map(({ id, from }) => [id, (from as { mailbox: string }).mailbox])).toEqual([
    ['waiting', 'bob'],
    ['running', 'alice'],
  ]);
});

test('a disk that takes nothing refuses by id, and the connection goes on', async () => {
  const { client, settle, store, core } = await coreBench();
  const alice = client().hello('alice');
  store.failure = new Error('no');
  alice.request('a');
  await settle();
  store.failure = undefined;
  alice.request('b');
  await settle();
  expect(alice.of('refused')).toMatchObject([{ id: 'a', error: { code: 'insufficient_storage' } }]);
  expect(alice.of('delivered')).toMatchObject([{ id: 'b' }]);
  expect(core.status().mailboxes).toMatchObject([{ count: 1 }]);
});

test('D-42 requests whose time is over make room for others while there is no host', async () => {
  const { client, clock, settle, events } = await coreBench({ mailboxMessages: 10 });
  const alice = client().hello('alice');
  for (let i = 0; i < 10; i++) alice.request(`old-${i}`);
  await settle();
  const before = alice.of('delivered').length;
  clock.advance(60_000 + 60_001);
  alice.request('new');
  await settle();
  expect(alice.of('delivered').length).toBe(before + 1);
  expect(events.filter(({ kind }) => kind === 'dropped').length).toBe(before);
});

test('D-52 a broker that stops says so, and not that a key does not count', async () => {
  const { client, settle, core } = await coreBench();
  const late = client();
  const closing = core.close();
  late.hello('alice');
  await settle();
  await closing;
  expect(late.of('error')).toMatchObject([{ error: { code: 'transport', reason: 'going_away' } }]);
});
