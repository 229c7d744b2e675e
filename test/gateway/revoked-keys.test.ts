/** A removed or expired key ends everything that was opened with it (the other half of AC-X4). */
import { createHash } from 'node:crypto';
import { afterEach, expect, test } from 'vitest';
import { parseKeys } from '../../src/config/keys.js';
import { listenEntry } from '../../src/config/listen-settings.js';
import type { Exchange } from '../../src/gateway/exchange.js';
import { createGateway, defaultParts, type Gateway } from '../../src/gateway/gateway.js';
import type { Host } from '../../src/host/host.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { FakeRouter, listen, META, modernHeaders, openSession, rawSocket, rpc, send } from './http-harness.js';

const hashOf = (key: string) => `sha256:${createHash('sha256').update(key).digest('hex')}`;
const ann = { ann: { hash: hashOf('key-of-ann') } };
const bob = { bob: { hash: hashOf('key-of-bob') } };
const toClose: Gateway[] = [];
afterEach(async () => {
  for (const gateway of toClose.splice(0)) await gateway.close(0);
});

async function open(keys: Record<string, unknown>) {
  const router = new FakeRouter();
  const clock = new FakeClock(0, new Date('2026-01-01T00:00:00Z'));
  router.answers.set('subscriptions/listen', (exchange) => exchange.notify('ack', '{}'));
  router.answers.set('slow', () => {});
  const nothing = () => {};
  const host = {
    whenAllListed: nothing,
    whenReady: nothing,
    learnTools: nothing,
    meterCalls: nothing,
    showUnrouted: nothing,
    on: () => nothing,
  } as unknown as Host;
  const gateway = await createGateway({
    ...{ host, clock },
    settings: { listen: listenEntry.parse({ port: 0 }), keys, auth: 'key', version: '1' },
    parts: { ...defaultParts, createRouter: () => router as never, parseKeys },
  });
  toClose.push({ ...gateway, close: () => closed(gateway, clock) } as Gateway);
  const port = Number(new URL(await gateway.listen()).port);
  return { gateway, router, clock, port };
}

async function closed(gateway: Gateway, clock: FakeClock): Promise<void> {
  let isClosed = false;
  const closing = gateway.close(0).then(() => {
    isClosed = true;
  });
  while (!isClosed) await clock.advanceAsync(100);
  await closing;
}

/** One open item of each kind. */
async function everything(port: number, router: FakeRouter, key: string) {
  const body = (method: string) => ({
    ...{ key, body: rpc(1, method, { _meta: META }), headers: modernHeaders(method) },
  });
  const stream = await listen(port, body('subscriptions/listen'));
  const call = send(port, body('slow'));
  await router.until(() => router.handled.some(({ method }) => method === 'slow'));
  const headers = await openSession(port, '2025-11-25', { key });
  const own = await listen(port, { method: 'GET', key, headers });
  const sessionCall = send(port, { key, headers, body: rpc(7, 'slow') });
  await router.until(() => router.handled.filter(({ method }) => method === 'slow').length >= 2);
  return { stream, call, own, sessionCall, headers };
}

const isAborted = ({ signal }: Exchange) => signal.aborted;

test('a key that is revoked ends its own streams, calls and sessions only', async () => {
  const { gateway, router, port } = await open({ ...ann, ...bob });
  const gone = await everything(port, router, 'Bearer key-of-ann');
  const slow = router.handled.filter(({ method }) => method === 'slow');
  const bobs = await listen(port, {
    ...{ key: 'Bearer key-of-bob', body: rpc(1, 'subscriptions/listen', { _meta: META }) },
    headers: modernHeaders('subscriptions/listen'),
  });
  gateway.replaceKeys(bob);
  await Promise.all([gone.stream.ended, gone.own.ended]);
  expect((await gone.call).status).toBe(401);
  expect((await gone.sessionCall).json().error?.code).toBe(-32600);
  expect(slow.map(isAborted)).toEqual([true, true]);
  expect(router.sessions[0]?.signal.aborted).toBe(true);
  const listening = router.handled.findLast(({ client }) => client.principal.id === 'bob');
  listening?.notify('still', '{}');
  await bobs.until((text) => text.includes('still'));
});

test('a key whose secret was replaced, and an expired key, end their streams, calls and sessions too', async () => {
  const { gateway, router, clock, port } = await open({ ann: { ...ann.ann, expires: '2026-01-01T00:05:00Z' }, ...bob });
  const anns = await everything(port, router, 'Bearer key-of-ann');
  const bobs = await openSession(port, '2025-11-25', { key: 'Bearer key-of-bob' });
  for (let minutes = 0; minutes < 4; minutes++) await clock.advanceAsync(60_000);
  expect(router.handled.some(isAborted)).toBe(false);
  await clock.advanceAsync(60_000);
  await Promise.all([anns.stream.ended, anns.own.ended, anns.call, anns.sessionCall]);
  gateway.replaceKeys({ bob: { hash: hashOf('another') } });
  const late = await send(port, { key: 'Bearer another', headers: bobs, body: rpc(1, 'ping') });
  expect(late.status).toBe(404);
});

test('setting the same keys again ends nothing, and a body on its way is refused after its key is removed', async () => {
  const { gateway, router, port } = await open({ ...ann });
  const { stream } = await everything(port, router, 'Bearer key-of-ann');
  gateway.replaceKeys({ ...ann });
  router.handled[0]?.notify('still', '{}');
  await stream.until((text) => text.includes('still'));
  const socket = rawSocket(port);
  const body = rpc(1, 'tools/list', { _meta: META });
  const answer = new Promise<string>((resolve) => socket.once('data', (bytes) => resolve(bytes.toString())));
  const head = { ...modernHeaders('tools/list'), authorization: 'Bearer key-of-ann', host: '127.0.0.1' };
  const lines = Object.entries({ ...head, 'content-type': 'application/json', 'content-length': String(body.length) });
  socket.write(
    `POST /mcp HTTP/1.1\r\naccept: application/json, text/event-stream\r\n${lines.map((line) => line.join(': ')).join('\r\n')}\r\n\r\n${body.slice(0, 5)}`,
  );
  const { status } = await send(port, { key: 'Bearer key-of-ann', method: 'GET' });
  expect(status).toBe(400);
  gateway.replaceKeys({});
  socket.write(body.slice(5));
  expect(await answer).toMatch(/^HTTP\/1\.1 401/);
});
