/** `isolation: "per-client"` through the gateway: which requests share a process of the server. */
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createBridge } from '../../src/gateway/eras/eras.js';
import { createRouter, type GatewayRouter } from '../../src/gateway/routing/router.js';
import { createHost, type Host } from '../../src/host/host.js';
import { systemClock } from '../../src/kernel/clock.js';
import { systemRandom } from '../../src/kernel/random.js';
import { eventually } from '../eventually.js';
import { modern, modernHeaders, openSession, rpc, send, start } from './http-harness.js';

const script = fileURLToPath(new URL('../fakes/asking-server.mjs', import.meta.url));
const bob = 'Bearer key-of-bob';
let host: Host;
let router: GatewayRouter;

beforeAll(async () => {
  const a = { command: process.execPath, args: [script], isolation: 'per-client' };
  host = await createHost({ mcpServers: { a } }, { learnAtBoot: true });
  await host.whenAllListed();
  const serverInfo = { name: 'hostler', version: '0' };
  const bridge = createBridge({ clock: systemClock, random: systemRandom });
  router = createRouter({ upstreams: host, bridge, clock: systemClock, serverInfo });
});
afterAll(async () => {
  router?.close();
  await host?.close();
});

const textOf = (reply: { json(): { result?: Record<string, unknown> } }) =>
  (reply.json().result?.content as { text: string }[] | undefined)?.[0]?.text;

test('E4 a client is identified by its session, its header and key, or its key, but never by its connection', async () => {
  const { port } = await start({ router });
  const params = { name: 'a__pid' };
  // Each request is sent over a connection of its own.
  const ask = async (headers: Record<string, string> = {}) => textOf(await modern(port, 'tools/call', params, headers));
  const [key, again, header, headerAgain, other, bobsHeader] = [
    await ask(),
    await ask(),
    await ask({ 'hostler-client': 'x' }),
    await ask({ 'hostler-client': 'x' }),
    await ask({ 'hostler-client': 'y' }),
    await ask({ 'hostler-client': 'x', authorization: bob }),
  ];
  expect([again, headerAgain]).toEqual([key, header]);
  expect(new Set([key, header, other, bobsHeader]).size).toBe(4);

  const session = await openSession(port, '2025-11-25', { headers: {} });
  const body = rpc(1, 'tools/call', params);
  const legacy = async () => (await send(port, { body, headers: { ...session, 'hostler-client': 'x' } })).text;
  const first = await legacy();
  expect(await legacy()).toBe(first);
  expect([key, header, other, bobsHeader].some((pid) => first.includes(`"${pid}"`))).toBe(false);
  expect(host.status()[0]?.instances).toBe(5);
  await send(port, { method: 'DELETE', headers: session });
  await eventually('the instance of the session is gone', () => host.status()[0]?.instances === 4);
});

test.each(['', 'a b', 'ü', 'a,b', 'x'.repeat(129), ['x', 'y']])('E4 Hostler-Client: %j is refused', async (value) => {
  const { port, router: reached } = await start();
  const headers = { ...modernHeaders('tools/list'), 'hostler-client': Buffer.from(String(value)).toString('latin1') };
  const doubled = Array.isArray(value) ? { ...headers, 'hostler-client': value } : headers;
  const reply = await send(port, { body: rpc(1, 'tools/list', {}), headers: doubled });
  expect([reply.status, reply.text.includes('Hostler-Client'), reached.reached]).toEqual([400, true, 0]);
});
