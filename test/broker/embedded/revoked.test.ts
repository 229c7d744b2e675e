/** What is left of a key that is gone: nothing it sent is run, nothing for it is kept. */
import { expect, test } from 'vitest';
import { coreBench, type Frame, hostCredential, worker } from './core-bench.js';

const ids = (frames: readonly Frame[]) => frames.map(({ id }) => id);

test.each([
  ['is gone', [worker('bob'), hostCredential]],
  ['has another role', [worker('alice', { role: 'operator' }), worker('bob'), hostCredential]],
])('what a key sent that %s is not handed out, and what runs of it is cancelled', async (_, credentials) => {
  const { client, settle, core, store, events } = await coreBench({ hostWindow: 2, hostWindowOfOne: 1 });
  const host = client().subscribed('host');
  const bob = client().hello('bob');
  client().hello('alice').request('running').request('waiting');
  bob.request('b1').request('b2');
  await settle();
  expect(ids(host.of('message'))).toEqual(['running', 'b1']);
  core.rekey(credentials);
  await settle();
  expect(host.of('cancel')).toMatchObject([{ id: 'running', from: { mailbox: 'alice', role: 'researcher' } }]);
  const [running] = host.of('message') as [Frame];
  const { seq, lease } = running;
  host.say({ kind: 'deliver', id: 'running', type: 'reply', to: 'alice', seq, lease, body: {} });
  await settle();
  expect(ids(host.of('refused'))).toEqual(['running']);
  host.ack(running).ack(host.of('message')[1] as Frame);
  await settle();
  expect(ids(host.of('message'))).toEqual(['running', 'b1', 'b2']);
  expect(events).toContainEqual(expect.objectContaining({ kind: 'dropped', id: 'waiting', reason: 'revoked' }));
  expect(await store.sizes()).toMatchObject([{ mailbox: 'host', count: 1 }]);
});

test('a key that has ended is no better than one that is gone', async () => {
  const expiresAtMs = new Date('2026-01-01T00:01:00Z').getTime();
  const { client, settle, clock } = await coreBench({ leaseMs: 1e9 }, [
    ...[worker('alice', { expiresAtMs }), worker('bob'), hostCredential],
  ]);
  client().hello('alice').request('a');
  client().hello('bob').request('b');
  await settle();
  await clock.advanceAsync(59_999);
  clock.advance(2);
  const host = client().subscribed('host');
  await settle();
  expect(ids(host.of('message'))).toEqual(['b']);
});

test.each([
  ['is gone', [worker('bob'), hostCredential]],
  ['has another role', [worker('alice', { role: 'operator' }), worker('bob'), hostCredential]],
])('replies for a mailbox whose key %s wait for nobody, and the next who has it does not get them', async (_, keys) => {
  const { client, settle, core, store, clock } = await coreBench();
  const host = client().subscribed('host');
  const reply = (id: string, to: string) => host.say({ kind: 'deliver', id, type: 'reply', to, body: {} });
  reply('old', 'alice');
  reply('kept', 'bob');
  await settle();
  core.rekey(keys);
  await settle();
  expect((await store.sizes()).map(({ mailbox }) => mailbox)).toEqual(['bob']);
  await clock.advanceAsync(1);
  core.rekey([worker('alice', { role: 'operator' }), worker('bob'), hostCredential]);
  await settle();
  reply('new', 'alice');
  const alice = client().subscribed('alice');
  await settle();
  expect(ids(alice.of('message'))).toEqual(['new']);
});

test('the next who has a mailbox gets nothing of the one before, also when it is there before the disk was read', async () => {
  const { client, settle, core } = await coreBench();
  const host = client().subscribed('host');
  for (let n = 0; n < 5; n++) host.say({ kind: 'deliver', id: `r${n}`, type: 'reply', to: 'alice', body: {} });
  await settle();
  core.rekey([worker('alice', { role: 'operator' }), hostCredential]);
  const alice = client().subscribed('alice');
  await settle();
  expect(alice.of('subscribed')).toHaveLength(1);
  expect(alice.of('message')).toEqual([]);
});

test('a dead letter of a key that is gone does not live again', async () => {
  const { client, settle, core } = await coreBench({ deliveries: 1 });
  const host = client().subscribed('host');
  client().hello('alice').request('a');
  await settle();
  host.reader.ended('closed with 1006');
  await settle();
  const [letter] = await core.deadLetters();
  const seq = letter?.seq as number;
  core.rekey([worker('bob'), hostCredential]);
  await expect(core.revive(seq)).rejects.toMatchObject({ code: 'denied', details: { reason: 'revoked' } });
  expect(await core.deadLetters()).toHaveLength(1);
  core.rekey([worker('alice'), hostCredential]);
  expect(await core.revive(seq)).toBe(true);
});

test('a request that says no end has one after a day', async () => {
  const { client, settle } = await coreBench();
  const host = client().subscribed('host');
  client().hello('alice').say({ kind: 'deliver', id: 'a', type: 'request', to: 'host', body: {} });
  await settle();
  expect(host.of('message')).toMatchObject([{ deadlineMs: 24 * 3_600_000 }]);
});

test('a key that went while the broker was away leaves nothing either', async () => {
  const { client, settle, store } = await coreBench();
  const host = client().subscribed('host');
  for (const to of ['alice', 'bob']) host.say({ kind: 'deliver', id: 'r', type: 'reply', to, body: {} });
  await settle();
  const next = await coreBench({}, [worker('bob'), hostCredential], store);
  await next.settle();
  expect((await store.sizes()).map(({ mailbox }) => mailbox)).toEqual(['bob']);
  expect(next.core.status().mailboxes.map(({ mailbox }) => mailbox)).toEqual(['bob']);
});
