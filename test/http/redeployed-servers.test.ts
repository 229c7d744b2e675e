/**
 * Servers that are redeployed behind an address that stays: in another era, or without the sessions of before. They are served
 * again without a reload, by one check and a new connection.
 */
import type { ServerResponse } from 'node:http';
import { afterEach, expect, test } from 'vitest';
import { createHost, type Host } from '../../src/host/host.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { eventually } from '../eventually.js';
import { ForgetfulServer } from '../fakes/forgetful-server.js';
import { events, json, type Received, result, rpcError, startServer } from '../fakes/http-server.js';
import { fakePrincipal } from '../fakes/policy-call.js';
import { failureOf, outcomeOf } from '../host/harness.js';

const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/** Lets virtual time pass; the sockets get real turns in between. */
async function pass(clock: FakeClock, ms: number, stepMs = 250): Promise<void> {
  for (let left = ms; left > 0; left -= stepMs) {
    clock.advance(stepMs);
    await new Promise((resolve) => setTimeout(resolve, 3));
  }
}

async function hostOf(url: string, entry: Record<string, unknown> = {}): Promise<{ host: Host; clock: FakeClock }> {
  const clock = new FakeClock();
  const host = await createHost({ mcpServers: { a: { url, ...entry } } }, { clock });
  closers.push(() => host.close());
  return { host, clock };
}

/** Calls every 5 s for a minute of host time. */
async function minuteOfCalls(host: Host, clock: FakeClock, tool: string): Promise<string[]> {
  const outcomes: string[] = [];
  for (let i = 0; i < 12; i++) {
    const outcome = outcomeOf(host.call('a', tool, {}));
    await pass(clock, 5_000);
    outcomes.push(await outcome);
  }
  return outcomes;
}

type Era = 'legacy' | 'modern';

interface Refusal {
  /** The refusal has the id of the request. The refusal of server-everything has it. */
  readonly namesRequest: boolean;
  /** Legacy: whether the server opens sessions with an id. */
  readonly hasSessions: boolean;
}

/** A server that can be redeployed in the other era; it counts what opened a connection. */
async function redeployable(era: Era, { namesRequest, hasSessions }: Refusal) {
  const state = { era, initializes: 0, discovers: 0, executed: 0, hangs: false, hung: 0 };
  let session = 'none';
  const answer = ({ id, rpcMethod, method, headers }: Received, response: ServerResponse): void => {
    if (method === 'DELETE') return void response.writeHead(200).end();
    const refuse = (status: number, code: number) =>
      void json(response, rpcError(namesRequest ? id : null, code), status);
    const isModern = headers['mcp-protocol-version'] === '2026-07-28';
    if (rpcMethod === 'server/discover') {
      state.discovers++;
      const facts = { supportedVersions: ['2026-07-28'], capabilities: { tools: {} }, resultType: 'complete' };
      return state.era === 'legacy' ? refuse(400, -32000) : void json(response, result(id, facts));
    }
    if (rpcMethod === 'initialize') {
      state.initializes++;
      if (state.era === 'modern') return refuse(hasSessions ? 200 : 400, -32601);
      session = `s${state.initializes}`;
      const serverInfo = { name: 'x', version: '1' };
      const facts = { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo };
      return void json(response, result(id, facts), 200, hasSessions ? { 'mcp-session-id': session } : {});
    }
    if (state.era === 'modern' && !isModern) return refuse(400, -32600);
    if (state.era === 'legacy' && (isModern || (hasSessions && headers['mcp-session-id'] !== session)))
      return refuse(400, -32000);
    if (method === 'GET') return void response.writeHead(405).end();
    if (id === undefined) return void response.writeHead(202).end();
    const more = state.era === 'modern' ? { resultType: 'complete' } : {};
    if (rpcMethod === 'tools/call' && state.hangs) return void state.hung++;
    if (rpcMethod === 'tools/call') state.executed++;
    const tools = [{ name: 'old', inputSchema: { type: 'object' } }];
    json(response, result(id, rpcMethod === 'tools/list' ? { tools, ...more } : { content: [], ...more }));
  };
  const server = await startServer(answer);
  closers.push(() => server.close());
  return { state, ...(await hostOf(server.url)) };
}

test.each([
  ['modern', 'legacy', { namesRequest: false, hasSessions: true }],
  ['modern', 'legacy', { namesRequest: true, hasSessions: true }],
  ['modern', 'legacy', { namesRequest: true, hasSessions: false }],
  ['legacy', 'modern', { namesRequest: false, hasSessions: true }],
  ['legacy', 'modern', { namesRequest: true, hasSessions: true }],
  ['legacy', 'modern', { namesRequest: false, hasSessions: false }],
] as const)('W27 a %s server that comes back as a %s one loses no call: %o', async (before, after, refusal) => {
  const { state, host, clock } = await redeployable(before, refusal);
  expect(await outcomeOf(host.call('a', 'old', {}))).toBe('ok');
  state.era = after;
  const outcomes = await minuteOfCalls(host, clock, 'old');
  expect([outcomes, state.executed]).toEqual([outcomes.map(() => 'ok'), 13]);
  const [row] = host.status();
  expect([row?.state, row?.circuit]).toEqual(['ready', 'closed']);
});

test('W27 a call that hangs in the old era keeps others waiting for 5 s at most, and the status says so', async () => {
  const { state, host, clock } = await redeployable('modern', { namesRequest: false, hasSessions: true });
  expect(await outcomeOf(host.call('a', 'old', {}))).toBe('ok');
  state.hangs = true;
  const hanging = failureOf(host.call('a', 'old', {}, { deadlineMs: 100_000 }));
  await eventually('it is at the server', () => state.hung === 1);
  Object.assign(state, { hangs: false, era: 'legacy' });
  const others: string[] = [];
  for (let i = 0; i < 3; i++) void outcomeOf(host.call('a', 'old', {})).then((outcome) => others.push(String(outcome)));
  await eventually('the era was checked', () => host.status()[0]?.state !== 'ready');
  expect([host.status()[0]?.state, state.discovers, others]).toEqual(['suspect', 2, []]);
  await pass(clock, 4_500);
  expect(others).toEqual([]);
  await eventually('they are served', () => {
    clock.advance(100);
    return others.length === 3;
  });
  expect([others, state.executed]).toEqual([['ok', 'ok', 'ok'], 4]);
  // It was cut, and has not waited for its deadline.
  expect((await hanging).toJSON()).toMatchObject({ code: 'outcome_uncertain', reason: 'protocol_refused' });
});

test.each([400, 404, 410])('W27 HTTP+SSE: a session that POSTs no longer find (%i) is opened again', async (status) => {
  let known = 0;
  let streams = 0;
  const byNo = new Map<number, ServerResponse>();
  const server = await startServer(({ method, id, path, rpcMethod }, response) => {
    if (method === 'GET') {
      known = ++streams;
      byNo.set(known, response);
      return void events(response).write(`event: endpoint\ndata: /messages?s=${known}\n\n`);
    }
    const no = Number(path.split('=')[1]);
    if (no !== known) return void response.writeHead(status).end('Could not find session');
    response.writeHead(202).end();
    if (id === undefined) return;
    const serverInfo = { name: 'x', version: '1' };
    const facts = { protocolVersion: '2024-11-05', capabilities: { tools: {} }, serverInfo };
    const tools = [{ name: 'old', inputSchema: { type: 'object' } }];
    const value = rpcMethod === 'initialize' ? facts : rpcMethod === 'tools/list' ? { tools } : { content: [] };
    byNo.get(no)?.write(`event: message\ndata: ${JSON.stringify(result(id, value))}\n\n`);
  });
  closers.push(() => server.close());
  const { host, clock } = await hostOf(server.url, { transport: 'http-sse' });
  expect(await outcomeOf(host.call('a', 'old', {}))).toBe('ok');
  known = -1;
  const outcomes = await minuteOfCalls(host, clock, 'old');
  expect([outcomes, streams]).toEqual([outcomes.map(() => 'ok'), 2]);
});

test('W1 a renewal that the stream began and that failed is tried again: updates arrive without a call', async () => {
  const server = await new ForgetfulServer().start();
  closers.push(() => server.http.close());
  const { host, clock } = await hostOf(server.http.url);
  await host.call('a', 'write', { nonce: 'first' });
  await host.subscribe('a', 'r:1', fakePrincipal('ann'), () => {});
  await pass(clock, 1_000);
  expect(server.openStreams).toBe(1);
  server.initialize = 'status_500';
  server.forgetSessions();
  await pass(clock, 15_000);
  // At 0, 1, 3, 7 and 15 s.
  expect(server.initializes).toBeGreaterThan(3);
  expect(server.initializes).toBeLessThan(8);
  expect(host.status()[0]?.state).toBe('suspect');
  server.initialize = 'answer';
  await pass(clock, 31_000);
  expect([server.openStreams, server.subscribed, host.status()[0]?.state]).toEqual([1, ['s1 r:1', 's2 r:1'], 'ready']);
});
