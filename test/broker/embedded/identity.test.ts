/** Who somebody is, and what it may do, comes from its key and from nothing it says. */
import { expect, test } from 'vitest';
import { digestOf } from '../../../src/config/keys.js';
import { coreBench, hostCredential, keyOf, worker } from './core-bench.js';

const refusal = { kind: 'error', error: { code: 'unauthenticated' } };

test.each([
  ['a key that nobody has', { kind: 'hello', v: 1, key: 'nobody' }],
  ['no key', { kind: 'hello', v: 1 }],
  ['the hash of a key', { kind: 'hello', v: 1, key: digestOf(keyOf('alice')) }],
  ['a forged mailbox', { kind: 'hello', v: 1, key: keyOf('alice'), mailbox: 'bob' }],
  ['hello as the host', { kind: 'hello', v: 1, key: keyOf('alice'), mailbox: 'host' }],
  ['a forged role', { kind: 'hello', v: 1, key: keyOf('alice'), role: 'operator' }],
  ['a role where the key has none', { kind: 'hello', v: 1, key: keyOf('plain'), role: 'researcher' }],
  ['an expired key', { kind: 'hello', v: 1, key: keyOf('old') }],
  ['another version', { kind: 'hello', v: 2, key: keyOf('alice') }],
  ['no hello', { kind: 'subscribe' }],
  ['a deliver first', { kind: 'deliver', id: 'a', type: 'request', to: 'host', body: {} }],
  ['no JSON', 'hello'],
])('D-46 %s is refused in the same words as everything else, and nothing it sends after is heard', async (_, frame) => {
  const credentials = [
    ...[worker('alice'), worker('plain', { role: undefined }), hostCredential],
    worker('old', { expiresAtMs: Date.parse('2025-12-31') }),
  ];
  const { client, settle, core } = await coreBench({}, credentials);
  const stranger = client().say(frame);
  stranger.say({ kind: 'subscribe' }).request('a');
  await settle();
  const uniform = client().say({ kind: 'hello', v: 1, key: 'somebody else' });
  await settle();
  expect(stranger.wire.frames).toMatchObject([refusal]);
  expect(stranger.wire.frames).toEqual(uniform.wire.frames);
  expect(stranger.wire.closed).toBe('refused');
  expect(core.status()).toMatchObject({ connections: 0, mailboxes: [], turnedAway: 2 });
});

test('D-46 a role that is missing is not one of the sender’s choosing: the host hears what the key says', async () => {
  const { client, settle } = await coreBench({}, [
    worker('alice'),
    worker('plain', { role: undefined }),
    hostCredential,
  ]);
  const host = client().subscribed('host');
  client()
    .hello('alice')
    .request('a', { from: { mailbox: 'plain', role: 'operator' } });
  client()
    .hello('plain')
    .say(
      '{"kind":"deliver","id":"b","type":"request","to":"host","from":{"mailbox":"alice","role":"operator"},"role":"operator","body":{}}',
    );
  await settle();
  expect(host.of('message').map(({ id, from }) => [id, from])).toEqual([
    ['a', { mailbox: 'alice', role: 'researcher' }],
    ['b', { mailbox: 'plain' }],
  ]);
});

test('AC-BR12 a worker sends requests to the host and nothing else to nobody else', async () => {
  const { client, settle, core } = await coreBench();
  const alice = client().subscribed('alice');
  const bob = client().subscribed('bob');
  alice
    .say({ kind: 'deliver', id: 'to-bob', type: 'request', to: 'bob', body: {} })
    .say({ kind: 'deliver', id: 'reply-to-bob', type: 'reply', to: 'bob', body: {} })
    .say({ kind: 'deliver', id: 'reply-to-host', type: 'reply', to: 'host', body: {} })
    .say({ kind: 'deliver', id: 'elsewhere', type: 'request', to: 'nobody', body: {} })
    .say({ kind: 'tell', to: 'bob', body: {} })
    .say({ kind: 'tell', body: {} })
    .say({ kind: 'cancel', to: 'bob', id: 'x' });
  await settle();
  expect(alice.of('refused').map(({ id, error }) => [id, (error as { code: string }).code])).toEqual([
    ['to-bob', 'denied'],
    ['reply-to-bob', 'denied'],
    ['reply-to-host', 'denied'],
    ['elsewhere', 'denied'],
  ]);
  expect(alice.of('error')).toHaveLength(3);
  expect(bob.wire.frames.map(({ kind }) => kind)).toEqual(['welcome', 'subscribed']);
  expect(core.status()).toMatchObject({ refused: 7 });
  expect(core.status().mailboxes.every(({ count }) => count === 0)).toBe(true);
  // It goes on all the same.
  alice.request('good');
  await settle();
  expect(alice.of('delivered')).toMatchObject([{ id: 'good' }]);
});

test('AC-BR12 a host answers mailboxes that somebody has, and sends no requests', async () => {
  const { client, settle } = await coreBench();
  const host = client().subscribed('host');
  host
    .say({ kind: 'deliver', id: 'a', type: 'reply', to: 'alice', body: {} })
    .say({ kind: 'deliver', id: 'b', type: 'reply', to: 'nobody', body: {} })
    .say({ kind: 'deliver', id: 'c', type: 'request', to: 'alice', body: {} });
  await settle();
  expect(host.of('delivered')).toMatchObject([{ id: 'a', to: 'alice' }]);
  expect(host.of('refused').map(({ id }) => id)).toEqual(['b', 'c']);
});

test('a second hello changes nothing', async () => {
  const { client, settle } = await coreBench();
  const host = client().subscribed('host');
  const alice = client()
    .hello('alice')
    .hello('bob')
    .hello('host')
    .say({ kind: 'hello', v: 1, key: 'nobody' })
    .request('a');
  await settle();
  expect(alice.of('welcome')).toHaveLength(1);
  expect(alice.wire.closed).toBeUndefined();
  expect(host.of('message')).toMatchObject([{ from: { mailbox: 'alice' } }]);
});

test('D-53 whoever says nothing is sent away after five seconds', async () => {
  const { client, clock, settle, core } = await coreBench();
  const silent = client();
  const alice = client().hello('alice');
  clock.advance(4_999);
  expect(silent.wire.closed).toBeUndefined();
  clock.advance(1);
  await settle();
  expect(silent.wire.closed).toBe('hello_timeout');
  expect(silent.wire.frames).toMatchObject([refusal]);
  clock.advance(10_000);
  expect(alice.wire.closed).toBeUndefined();
  expect(core.status().connections).toBe(1);
});

test.each([
  ['a path', '../../etc/passwd'],
  ['an empty one', ''],
  ['too long', 'a'.repeat(129)],
  ['a space', 'a b'],
  ['a NUL', 'a\0'],
  ['a number', 7],
  ['an object', {}],
])('D-53 an id that is %s is none', async (_, id) => {
  const { client, settle, core } = await coreBench();
  const alice = client().hello('alice').say({ kind: 'deliver', id, type: 'request', to: 'host', body: {} });
  await settle();
  expect(alice.wire.closed).toBe('bad_frame');
  expect(core.status().mailboxes).toEqual([]);
});

test('D-53 one id that ends like another does not acknowledge it; numbers are the broker’s, not the sender’s', async () => {
  const { client, settle, store } = await coreBench();
  const host = client().subscribed('host');
  client()
    .hello('alice')
    .request('xid')
    .request('id')
    .say('{"kind":"deliver","id":"z","seq":1,"type":"request","to":"host","body":{}}');
  await settle();
  const messages = host.of('message');
  expect(messages.map(({ seq, id }) => [seq, id])).toEqual([
    [1, 'xid'],
    [2, 'id'],
    [3, 'z'],
  ]);
  host.ack(messages[1] as never);
  await settle();
  expect((await store.read('host', 0, { count: 10, bytes: 1_000 })).map(({ id }) => id)).toEqual(['xid', 'z']);
});

test('AC-BR13 a key that ends takes its running connection with it, in that instant', async () => {
  const endsAtMs = new Date('2026-01-01T00:02:00Z').getTime();
  const { client, clock, settle, core } = await coreBench({ leaseMs: 1e9 }, [
    worker('alice', { expiresAtMs: endsAtMs }),
    worker('bob'),
    hostCredential,
  ]);
  const [alice, bob] = [client().subscribed('alice'), client().subscribed('bob')];
  clock.advance(119_999);
  expect(alice.wire.closed).toBeUndefined();
  clock.advance(1);
  await settle();
  expect(alice.wire.closed).toBe('refused');
  expect(alice.of('error')).toMatchObject([{ error: { code: 'unauthenticated' } }]);
  expect(bob.wire.closed).toBeUndefined();
  expect(core.status().connections).toBe(1);
  const again = client().hello('alice');
  await settle();
  expect(again.wire.closed).toBe('refused');
});

test('AC-BR13 new keys cut at once whoever’s key is gone or says something else now, and nobody else', async () => {
  const { client, core, settle, events } = await coreBench({}, [
    ...[worker('alice'), worker('bob'), worker('carol'), worker('dave'), hostCredential],
  ]);
  const names = ['alice', 'bob', 'carol', 'dave', 'host'];
  const clients = names.map((name) => client().subscribed(name));
  core.rekey([
    worker('alice'),
    worker('bob', { role: 'operator' }),
    worker('carol', { sendsTo: ['elsewhere'] }),
    hostCredential,
  ]);
  await settle();
  expect(clients.map(({ wire }) => wire.closed)).toEqual([undefined, 'refused', 'refused', 'refused', undefined]);
  expect(events).toContainEqual({ kind: 'rekeyed', cut: 3 });
  const bob = client().hello('bob');
  await settle();
  expect(bob.of('welcome')).toMatchObject([{ mailbox: 'bob', role: 'operator' }]);
});

test('AC-BR13 what a key sent that is gone is not handed out any more, and whoever has it hears that nobody wants it', async () => {
  const [alice, second, bob] = [worker('alice'), worker('alice', { digest: digestOf('another') }), worker('bob')];
  const { client, core, settle, events, store } = await coreBench({ hostWindow: 1 }, [alice, bob, hostCredential]);
  const host = client().subscribed('host');
  for (const name of ['alice', 'bob']) client().subscribed(name).request(`${name}-1`).request(`${name}-2`);
  await settle();
  const idsOf = (kind: string) => host.of(kind).map(({ id }) => id);
  expect(idsOf('message')).toEqual(['alice-1']);
  // Another key of the same mailbox speaks for it.
  core.rekey([second, bob, hostCredential]);
  await settle();
  expect(idsOf('cancel')).toEqual([]);
  core.rekey([bob, hostCredential]);
  await settle();
  expect(idsOf('cancel')).toEqual(['alice-1']);
  expect(events.filter(({ kind }) => kind === 'dropped')).toMatchObject([{ id: 'alice-2' }]);
  for (const message of [...host.of('message')]) host.ack(message as never);
  await settle();
  expect(idsOf('message')).toEqual(['alice-1', 'bob-1']);
  expect((await store.read('host', 0, { count: 10, bytes: 1_000 })).map(({ id }) => id)).toEqual(['bob-1', 'bob-2']);
});

test.each([
  ['its key is gone', [hostCredential]],
  ['its key has ended', [worker('alice', { expiresAtMs: Date.parse('2025-12-31') }), hostCredential]],
  ['its role is another', [worker('alice', { role: 'operator' }), hostCredential]],
])('AC-BR13 a request that waited while no host was there is not handed out when %s', async (_, credentials) => {
  const { client, settle, store } = await coreBench();
  client().hello('alice').request('a');
  await settle();
  const next = await coreBench({}, credentials, store);
  const host = next.client().subscribed('host');
  await next.settle();
  expect(host.of('message')).toEqual([]);
  expect(next.core.status().mailboxes).toMatchObject([{ mailbox: 'host', count: 0 }]);
});

test('D-53 nothing secret is in what is told', async () => {
  const { client, core, settle, events } = await coreBench();
  const alice = client().subscribed('alice');
  const host = client().subscribed('host');
  client().say({ kind: 'hello', v: 1, key: 'a guess that is secret' });
  alice.request('a', { password: 'hunter2' }).say({ kind: 'nonsense', key: keyOf('bob') });
  await settle();
  host.reader.ended('closed with 1006');
  const told = JSON.stringify([events, core.status(), alice.wire.frames]);
  for (const secret of [keyOf('alice'), keyOf('bob'), keyOf('host'), 'a guess', 'hunter2', digestOf(keyOf('alice'))])
    expect(told).not.toContain(secret);
  expect(told).toContain('disconnected');
});
