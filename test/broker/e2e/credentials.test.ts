/** Who may use a running Hostler over its broker: by keys that are made, changed and taken away with `hostler key`. */
import { readFileSync, statSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { RemoteTools } from '../../../src/broker/worker/index.js';
import { eventually } from '../../eventually.js';
import { RawSocket } from '../embedded/socket-bench.js';
import { BrokerPlace, type BrokerReady, hashOf, newKey } from './broker-place.js';

const sleepyServer = fileURLToPath(new URL('../../fakes/sleepy-server.pl', import.meta.url));
const place = new BrokerPlace();
const keys = { alice: newKey(), bob: newKey(), carol: newKey(), host: newKey(), client: newKey() };
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
      alice: { hash: hashOf(keys.alice), mailbox: 'alice', role: 'writer' },
      bob: { hash: hashOf(keys.bob), mailbox: 'bob', role: 'reader' },
      carol: { hash: hashOf(keys.carol), mailbox: 'carol', role: 'writer' },
      far: { hash: hashOf(keys.host), mailbox: 'far', destinations: ['*'] },
      client: { hash: hashOf(keys.client), role: 'writer' },
    },
    broker: { listen: { port: 0 }, limits: { callsPerWorker: 2 } },
  });
  ready = await place.upWithBroker();
});
afterAll(() => place.remove());

const ran = () => place.ran('books');
const callFrame = (id: string, nonce: string, over: object = {}) => ({
  ...{ kind: 'deliver', id, type: 'request', to: 'host', ttlMs: 20_000 },
  body: { v: 1, op: 'call', callKey: id, deadlineMs: 20_000, server: 'books', tool: 'work', arguments: { nonce } },
  ...over,
});
const refusal = { kind: 'error', error: { code: 'unauthenticated' } };
const codeOf = (error: { code?: string; details?: { execution?: string } }) => [error.code, error.details?.execution];
const refused = (tools: RemoteTools, nonce: string) =>
  tools.execute('books', 'work', { nonce }, { deadlineMs: 10_000 }).then(() => 'answered', codeOf);
/** The state after which nothing of it comes through any more. */
const cutOff = (tools: RemoteTools) => eventually('the cut', () => tools.status().state === 'refused', 20_000);

test.each([
  ['a forged role', () => ({ key: keys.bob, role: 'writer' })],
  ['a forged mailbox', () => ({ key: keys.bob, mailbox: 'alice' })],
  ['a worker’s key as the host', () => ({ key: keys.bob, mailbox: 'host' })],
  ['the key of a client of the gateway', () => ({ key: keys.client })],
  ['the key of this machine', () => ({ key: ready.key })],
  ['the hash of a key', () => ({ key: hashOf(keys.alice) })],
])('D-46 %s opens nothing at the broker of a running host, and nothing sent after it runs', async (_, claim) => {
  const raw = await RawSocket.open(ready.broker);
  raw.say({ kind: 'hello', v: 1, ...claim() });
  raw.say({ kind: 'subscribe' }).say(callFrame('forged-1', 'forged'));
  await eventually('the end', () => raw.closed);
  expect([raw.frames.length, raw.closed]).toEqual([1, { code: 4401, reason: 'refused' }]);
  expect(raw.frames[0]).toMatchObject(refusal);
  expect(ran()).not.toContain('forged');
});

test('D-46 the key of a worker, or of a host elsewhere, opens nothing at the gateway', async () => {
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
  expect([await ask(keys.alice), await ask(keys.host), await ask(keys.client)]).toEqual([401, 401, 200]);
});

test('D-46 what a frame says of its sender counts for nothing: the call is judged by the role of the key', async () => {
  const bob = await RawSocket.open(ready.broker);
  bob.say({ kind: 'hello', v: 1, key: keys.bob }).say({ kind: 'subscribe' });
  bob.say(callFrame('as-alice', 'as-alice', { from: { mailbox: 'alice', role: 'writer' }, role: 'writer' }));
  const reply = await eventually('a reply', () => bob.frames.find(({ kind }) => kind === 'message'));
  expect(reply).toMatchObject({ id: 'as-alice', body: { error: { code: 'denied' } } });
  expect(ran()).not.toContain('as-alice');
  bob.socket.terminate();
});

test('B11 one frame played again, over its connection, another one and by somebody else, runs once', async () => {
  const frame = JSON.stringify(callFrame('replayed', 'replayed'));
  const replies: unknown[] = [];
  for (let round = 0; round < 3; round++) {
    const alice = await RawSocket.open(ready.broker);
    alice.say({ kind: 'hello', v: 1, key: keys.alice }).say({ kind: 'subscribe' }).say(frame).say(frame);
    const reply = await eventually('a reply', () => alice.frames.find(({ kind }) => kind === 'message'));
    replies.push(reply.body);
    alice.socket.terminate();
  }
  const bob = await RawSocket.open(ready.broker);
  bob.say({ kind: 'hello', v: 1, key: keys.bob }).say({ kind: 'subscribe' }).say(frame);
  const reply = await eventually('a reply', () => bob.frames.find(({ kind }) => kind === 'message'));
  bob.socket.terminate();
  expect(reply.body).toMatchObject({ error: { code: 'denied' } });
  expect(new Set(replies.map((body) => JSON.stringify(body))).size).toBe(1);
  expect(replies[0]).toMatchObject({ result: { content: [{ text: 'replayed' }] } });
  expect(ran().filter((nonce) => nonce === 'replayed')).toHaveLength(1);
});

test('AC-BR13 a key that ends while its worker is connected takes the connection with it', async () => {
  const endsAtMs = Date.now() + 10_000;
  const { stdout } = await place.key(
    ...['add', 'shortly', '--worker', '--role', 'writer', '--expires', new Date(endsAtMs).toISOString()],
  );
  const tools = await eventually('the new key counts', () =>
    place.worker(ready.broker, stdout.trim()).catch(() => undefined),
  );
  await tools.execute('books', 'work', { nonce: 'in-time' });
  await cutOff(tools);
  console.log(`AC-BR13 cut ${Date.now() - endsAtMs} ms after its key ended`);
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
  console.log(`AC-BR13 cut ${Math.round(cutMs)} ms after the file changed`);
  const after = ran().filter((nonce) => nonce.startsWith('carol-') && !(Number(nonce.slice(6)) < sentByThen));
  expect(after).toEqual([]);
  // Everybody is let in again only with a key that counts.
  await expect(place.worker(ready.broker, keys.carol)).rejects.toMatchObject({ code: 'unauthenticated' });
});

test('AC-BR13 what waits for its turn when its key is revoked is not run any more', async () => {
  const file = `${place.folder}/dan.key`;
  expect((await place.key('add', 'dan', '--worker', '--role', 'slow', '--key-file', file)).code).toBe(0);
  const dan = await RawSocket.open(ready.broker);
  const key = readFileSync(file, 'utf8').trim();
  await eventually('the new key counts', async () => {
    const tried = await RawSocket.open(ready.broker);
    tried.say({ kind: 'hello', v: 1, key });
    const [frame] = await eventually('a word', () => tried.frames.length > 0 && tried.frames);
    tried.socket.terminate();
    return frame?.kind === 'welcome';
  });
  dan.say({ kind: 'hello', v: 1, key }).say({ kind: 'subscribe' });
  // More than a host is handed at a time; one of them runs at a time, for a second.
  for (let i = 0; i < 400; i++) {
    const call = callFrame(`dan-${i}`, `dan-${i}`);
    const args = { nonce: `dan-${i}`, sleepMs: 1_000 };
    dan.say({ ...call, body: { ...call.body, deadlineMs: 600_000, server: 'slow', arguments: args }, ttlMs: 600_000 });
  }
  const begun = () => place.ran('slow').filter((line) => line.startsWith('start ')).length;
  await eventually('all of them held', () => dan.frames.filter(({ kind }) => kind === 'delivered').length === 400);
  await eventually('some of them begun', () => begun() > 0);
  await place.key('revoke', 'dan');
  await eventually('the cut', () => dan.closed);
  const byThen = begun();
  // Somebody else's turn comes at once, in the same line of the same server.
  const alice = await place.worker(ready.broker, keys.alice);
  for (const nonce of ['x', 'y', 'z']) await alice.execute('slow', 'work', { nonce, sleepMs: 1_000 });
  console.log(`AC-BR13 ${byThen} of 400 were begun when the key was gone, ${begun() - byThen - 3} after it`);
  // One may have been on its way.
  expect(begun() - byThen - 3).toBeLessThanOrEqual(1);
});

test('AC-BR13 a key is changed without a gap: the second is let in, then the first is taken away', async () => {
  const first = await place.worker(ready.broker, keys.alice);
  const { stdout } = await place.key('add', 'alice2', '--mailbox', 'alice', '--role', 'writer');
  const second = await eventually('the new key counts', () =>
    place.worker(ready.broker, stdout.trim()).catch(() => undefined),
  );
  await second.execute('books', 'work', { nonce: 'both-count' });
  await place.key('revoke', 'alice');
  await cutOff(first);
  expect(await refused(first, 'old-key')).toEqual(['unauthenticated', 'not_executed']);
  await second.execute('books', 'work', { nonce: 'new-key' });
  expect(ran().filter((nonce) => ['both-count', 'old-key', 'new-key'].includes(nonce))).toEqual([
    'both-count',
    'new-key',
  ]);
});
