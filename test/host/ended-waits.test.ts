/** Requests that a server never answers: `timeouts.call` ends them, and they are not counted after their instance has ended. */
import { afterEach, expect, test } from 'vitest';
import { createHost } from '../../src/host/host.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { eventually } from '../eventually.js';
import { json, result, rpcError, startServer } from '../fakes/http-server.js';
import { outcomeOf } from './harness.js';

const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/** A legacy server over HTTP that answers everything except `hung` requests. */
async function open(hung: string, entry: Record<string, unknown>) {
  const server = await startServer(({ method, id, rpcMethod }, response) => {
    if (method !== 'POST') return void response.writeHead(405).end();
    if (rpcMethod === 'server/discover') return void json(response, rpcError(null, -32000), 400);
    if (id === undefined) return void response.writeHead(202).end();
    if (rpcMethod === hung) return;
    const capabilities = { tools: {}, resources: {} };
    const facts = { protocolVersion: '2025-11-25', capabilities, serverInfo: { name: 'x', version: '1' } };
    const tools = [{ name: 'old', inputSchema: { type: 'object' } }];
    json(response, result(id, rpcMethod === 'initialize' ? facts : { tools }));
  });
  closers.push(() => server.close());
  const clock = new FakeClock();
  const host = await createHost({ mcpServers: { a: { url: server.url, ...entry } } }, { clock });
  closers.push(() => host.close());
  const areSent = (count: number) =>
    eventually('all are sent', () => server.received.filter(({ rpcMethod }) => rpcMethod === hung).length === count);
  return { host, clock, areSent };
}

test('K9 a read whose caller gave no deadline ends by timeouts.call', async () => {
  const { host, clock, areSent } = await open('resources/read', { timeouts: { call: '5s' } });
  const read = outcomeOf(host.read('a', 'r:1', { deadlineMs: Number.POSITIVE_INFINITY }));
  await areSent(1);
  await clock.advanceAsync(5_000);
  expect(await read).toBe('timeout');
});

test('E4 the breaker of an instance that was ended with hung calls is not shown', async () => {
  const { host, clock, areSent } = await open('tools/call', { isolation: 'per-client', timeouts: { call: '3s' } });
  const calls = Array.from({ length: 5 }, () => outcomeOf(host.call('a', 'old', {}, { instance: 'ann' })));
  await areSent(5);
  let isReloaded = false;
  void host.reload('a').then(() => {
    isReloaded = true;
  });
  await eventually('the instance has ended', async () => {
    await clock.advanceAsync(500);
    return isReloaded;
  });
  await Promise.all(calls);
  const [row] = host.status();
  expect([row?.instances, row?.circuit, row?.consecutiveFailures]).toEqual([0, 'closed', 0]);
});
