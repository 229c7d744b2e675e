/** Who may use a running Hostler as a worker: keys that are made, changed and revoked with `hostler key`. */
import { readFileSync, statSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { RemoteTools } from '../../../src/broker/worker/index.js';
import { eventually } from '../../eventually.js';
import { BrokerPlace, type BrokerReady, hashOf, newKey } from './broker-place.js';
import { newSession, RawWorker } from './raw-worker.js';

const sleepyServer = fileURLToPath(new URL('../../fakes/sleepy-server.pl', import.meta.url));
const place = new BrokerPlace();
const keys = { alice: newKey(), bob: newKey(), carol: newKey(), client: newKey() };
let ready: BrokerReady;

beforeAll(async () => {
  place.configure({
    mcpServers: {
      books: place.ledgerEntry('books'),
      slow: { ...place.ledgerEntry('slow'), args: [sleepyServer], concurrency: 1 },
    },
    roles: {
      writer: { allow: ['books/*', 'slow/*'] },
      reader: { allow: ['other/*'] },
      slow: { allow: ['slow/*'] },
    },
    keys: {
      alice: { hash: hashOf(keys.alice), worker: 'alice', epoch: 'a1', role: 'writer' },
      bob: { hash: hashOf(keys.bob), worker: 'bob', role: 'reader' },
      carol: { hash: hashOf(keys.carol), worker: 'carol', role: 'writer' },
      client: { hash: hashOf(keys.client), role: 'writer' },
    },
    broker: { listen: { port: 0 }, limits: { callsPerWorker: 2 } },
  });
  ready = await place.upWithBroker();
});
afterAll(() => place.remove());

const ran = () => place.ran('books');
const codeOf = (error: { code?: string; details?: { execution?: string } }) => [error.code, error.details?.execution];
const refused = (tools: RemoteTools, nonce: string) =>
  tools.execute('books', 'work', { nonce }, { deadlineMs: 10_000 }).then(() => 'answered', codeOf);
const cutOff = (tools: RemoteTools) => eventually('the cut', () => tools.status().state === 'refused', 20_000);

test.each([
  ['the key of a client of the gateway', () => keys.client],
  ['the key of this machine', () => ready.key],
  ['the hash of a key', () => hashOf(keys.alice)],
  ['an unknown key with the name of a worker', () => newKey()],
])('D-46 %s is refused by the broker before there is a WebSocket', async (_, key) => {
  const raw = RawWorker.open(ready.broker, key(), newSession(), { 'hostler-worker': 'alice' });
  await eventually('the end', () => raw.closed);
  expect([raw.messages, raw.closed?.code]).toEqual([[], 401]);
});

test('D-46 the key of a worker is refused by the gateway', async () => {
  const ask = (key: string) =>
    fetch(ready.url, {
      method: 'POST',
      headers: {
        ...{ authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        accept: 'application/json, text/event-stream',
      },
      body: JSON.stringify({
        ...{ jsonrpc: '2.0', id: 1, method: 'initialize' },
        params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'e2e', version: '1' } },
      }),
    }).then(({ status }) => status);
  expect([await ask(keys.alice), await ask(keys.client)]).toEqual([401, 200]);
});

test.each([
  ['a forged role and name in the headers', { 'hostler-worker': 'alice', 'hostler-role': 'writer' }, {}],
  ['a forged role and name in the call', {}, { worker: 'alice', role: 'writer', from: { name: 'alice' } }],
])('D-46 %s have no effect: the role of the key decides about the call', async (_, claims, call) => {
  const bob = RawWorker.open(ready.broker, keys.bob, newSession(), claims);
  expect(await bob.heard('welcome')).toMatchObject({ worker: 'bob', role: 'reader' });
  bob.call('as-alice', call);
  expect(await bob.heard('refused')).toMatchObject({ key: 'as-alice', error: { code: 'denied' } });
  expect(ran()).not.toContain('as-alice');
  bob.end();
});

test('B11 a call that is sent again over its connection, over another one and by another worker runs once', async () => {
  const session = newSession();
  const replies: unknown[] = [];
  for (let round = 0; round < 3; round++) {
    const alice = await RawWorker.joined(ready.broker, keys.alice, session);
    const { storeId } = await alice.heard('welcome');
    const before = round === 0 ? {} : { storeId, receipt: true };
    alice.call('replayed', before).call('replayed', { storeId, receipt: round > 0 });
    replies.push((await alice.heard('reply', 'replayed')).body);
    alice.end();
  }
  const bob = await RawWorker.joined(ready.broker, keys.bob);
  bob.call('replayed');
  expect(await bob.heard('refused')).toMatchObject({ error: { code: 'denied' } });
  bob.end();
  expect(new Set(replies.map((body) => JSON.stringify(body))).size).toBe(1);
  expect(replies[0]).toMatchObject({ result: { content: [{ text: 'replayed' }] } });
  expect(ran().filter((nonce) => nonce === 'replayed')).toHaveLength(1);
});

test('AC-BR14 two processes with one key are two sessions, each with its own replies', async () => {
  const [first, second] = [
    await RawWorker.joined(ready.broker, keys.alice),
    await RawWorker.joined(ready.broker, keys.alice),
  ];
  first.call('of-first');
  second.call('of-second');
  await first.heard('reply', 'of-first');
  await second.heard('reply', 'of-second');
  const replies = (raw: RawWorker) => raw.messages.filter(({ op }) => op === 'reply').map(({ key }) => key);
  expect([replies(first), replies(second), first.closed, second.closed]).toEqual([
    ...[['of-first'], ['of-second']],
    ...[undefined, undefined],
  ]);
  first.end();
  second.end();
});

test('AC-BR13 if a key expires while its worker is connected, the connection ends', async () => {
  const endsAtMs = Date.now() + 10_000;
  const { stdout } = await place.key(
    ...['add', 'shortly', '--worker', 'shortly', '--role', 'writer', '--expires', new Date(endsAtMs).toISOString()],
  );
  const tools = await eventually('the new key is accepted', () =>
    place.worker(ready.broker, stdout.trim()).catch(() => undefined),
  );
  await tools.execute('books', 'work', { nonce: 'in-time' });
  await cutOff(tools);
  console.log(`AC-BR13 closed ${Date.now() - endsAtMs} ms after its key expired`);
  expect(Date.now()).toBeGreaterThanOrEqual(endsAtMs);
  expect(await refused(tools, 'too-late')).toEqual(['unauthenticated', 'not_executed']);
  expect([ran().includes('in-time'), ran().includes('too-late')]).toEqual([true, false]);
});

test('AC-BR13 a key is revoked under load: its worker is cut, and nothing it sends after that runs', async () => {
  const tools = await place.worker(ready.broker, keys.carol);
  let number = 0;
  let isOver = false;
  const answered: number[] = [];
  const loops = Array.from({ length: 4 }, async () => {
    while (!isOver) {
      const mine = number++;
      await tools.execute('books', 'work', { nonce: `carol-${mine}` }, { deadlineMs: 10_000 }).then(
        () => answered.push(mine),
        () => new Promise((resolve) => setTimeout(resolve, 5)),
      );
    }
  });
  await eventually('calls', () => answered.length > 20);
  expect((await place.key('revoke', 'carol')).code).toBe(0);
  const changedAtMs = statSync(place.config).mtimeMs;
  await cutOff(tools);
  const cutMs = Date.now() - changedAtMs;
  const sentByThen = number;
  expect(await refused(tools, 'carol-after')).toEqual(['unauthenticated', 'not_executed']);
  await eventually('more tries', () => number > sentByThen + 20);
  isOver = true;
  await Promise.all(loops);
  console.log(`AC-BR13 closed ${Math.round(cutMs)} ms after the file changed`);
  const after = ran().filter((nonce) => nonce.startsWith('carol-') && !(Number(nonce.slice(6)) < sentByThen));
  expect(after).toEqual([]);
  await expect(place.worker(ready.broker, keys.carol)).rejects.toMatchObject({ code: 'unauthenticated' });
});

test('AC-BR13 queued calls of a revoked worker never run, and the next holder of its name receives nothing', async () => {
  const add = async (name: string): Promise<string> => {
    const file = `${place.folder}/${name}.key`;
    const { code } = await place.key('add', name, '--worker', 'dan', '--role', 'slow', '--key-file', file);
    expect(code).toBe(0);
    return readFileSync(file, 'utf8').trim();
  };
  const joined = (key: string, session: string) =>
    eventually('the new key is accepted', async () => {
      const raw = RawWorker.open(ready.broker, key, session);
      await eventually('an answer', () => raw.messages.length > 0 || raw.closed);
      return raw.closed ? undefined : raw;
    });
  const session = newSession();
  const dan = await joined(await add('dan1'), session);
  // The server runs one at a time, for a second; the host runs two of one worker.
  const count = 200;
  for (let i = 0; i < count; i++)
    dan.call(`dan-${i}`, {
      ...{ deadlineMs: 600_000, server: 'slow', arguments: { nonce: `dan-${i}`, sleepMs: 1_000 } },
    });
  const begun = () => place.ran('slow').filter((line) => line.startsWith('start dan-')).length;
  await eventually('receipts for all', () => dan.messages.filter(({ op }) => op === 'receipt').length === count);
  await eventually('one that has begun', () => begun() > 0);
  await place.key('revoke', 'dan1');
  await eventually('the cut', () => dan.closed);
  const byThen = begun();
  // The next holder of the name claims the same session, and asks for the calls of the earlier holder.
  const next = await joined(await add('dan2'), session);
  next.say({ op: 'ask', id: 'q', keys: Array.from({ length: count }, (_, i) => `dan-${i}`) });
  expect(await next.heard('asked')).toMatchObject({ running: [] });
  // Calls of another worker pass through the same queue.
  const alice = await place.worker(ready.broker, keys.alice);
  for (const nonce of ['x', 'y', 'z']) await alice.execute('slow', 'work', { nonce, sleepMs: 1_000 });
  console.log(`AC-BR13 ${byThen} of ${count} had begun at the cut, ${begun() - byThen} after it`);
  // One may have been on its way to the server.
  expect(begun() - byThen).toBeLessThanOrEqual(1);
  expect(next.messages.filter(({ op }) => op === 'reply')).toEqual([]);
  next.end();
});

test('AC-BR13 a worker stays connected while its key is changed: the second key is accepted, then the first is revoked', async () => {
  const first = await place.worker(ready.broker, keys.alice);
  const { stdout } = await place.key('add', 'alice2', '--worker', 'alice', '--role', 'writer');
  const second = await eventually('the new key is accepted', () =>
    place.worker(ready.broker, stdout.trim()).catch(() => undefined),
  );
  await second.execute('books', 'work', { nonce: 'both-accepted' });
  await place.key('revoke', 'alice');
  await cutOff(first);
  expect(await refused(first, 'old-key')).toEqual(['unauthenticated', 'not_executed']);
  await second.execute('books', 'work', { nonce: 'new-key' });
  expect(ran().filter((nonce) => ['both-accepted', 'old-key', 'new-key'].includes(nonce))).toEqual([
    'both-accepted',
    'new-key',
  ]);
});
