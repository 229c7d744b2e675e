/**
 * A question of a server reaches the user of the client, and the answer reaches the tool: official clients of both eras, the
 * fixture servers of both eras, over pipes and in memory, with a bridge and little else in between.
 */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Bridge } from '../../src/gateway/bridge/bridged-request.js';
import { createLegacyBridge } from '../../src/gateway/eras/legacy/bridge.js';
import { createModernBridge } from '../../src/gateway/eras/modern/bridge.js';
import { ParkedCalls } from '../../src/gateway/eras/modern/parked-call.js';
import { systemClock } from '../../src/kernel/clock.js';
import { systemRandom } from '../../src/kernel/random.js';
import { type Bench, type Cell, cells } from '../contract/cells.js';
import { eventually } from '../eventually.js';
import { GatewayEnd, Upstream } from '../fakes/bridge-gateway.js';
import {
  connectSdk1Client,
  connectSdk2Client,
  type Heard,
  type SdkClient,
  type Target,
} from '../fixtures/sdk-clients.js';

type Connect = (target: Target, heard: Heard) => Promise<SdkClient>;
const clients: readonly (readonly [name: string, connect: Connect])[] = [
  ['legacy client (SDK 1)', connectSdk1Client],
  ['legacy client (SDK 2)', (target, heard) => connectSdk2Client(target, heard, 'legacy')],
  ['modern client (SDK 2)', (target, heard) => connectSdk2Client(target, heard, 'modern')],
];
const isLegacy = (name: string) => name.startsWith('legacy');

const servers = cells.filter(
  ({ transport, abilities }) => abilities.asks && (transport === 'memory' || transport === 'stdio'),
);

test('there are servers of both eras, over pipes and in memory', () => {
  const kinds = new Set(servers.map(({ era, transport }) => `${era} ${transport}`));
  expect([...kinds].sort()).toEqual(['legacy memory', 'legacy stdio', 'modern memory', 'modern stdio']);
});

describe.each(servers.map((cell) => [`${cell.era} server ${cell.name}`, cell] as const))('%s', (_, cell: Cell) => {
  let bench: Bench;
  const calls = new ParkedCalls();
  const modern = createModernBridge({ clock: systemClock, calls });
  const legacy = createLegacyBridge({ clock: systemClock, random: systemRandom });
  const bridge: Bridge = {
    relay: (request) => (request.exchange.client.era === 'modern' ? modern : legacy).relay(request),
  };

  beforeEach(async () => {
    bench = await cell.open();
  });
  afterEach(() => bench.close());

  async function meet(connect: Connect, principal: string) {
    const upstream = new Upstream();
    upstream.session = await bench.connect({ handlers: { request: upstream.take } });
    const end = new GatewayEnd(bridge, upstream, principal);
    const heard: Heard = [];
    const client = await connect({ kind: 'memory', transport: end }, heard);
    return { upstream, end, client, heard };
  }

  test.each(clients)('%s: the tool gets the person’s answer', async (name, connect) => {
    const { client, upstream, end, heard } = await meet(connect, 'ann');
    const result = await client.request('tools/call', { name: 'ask', arguments: {} });
    expect(JSON.stringify(result)).toContain('Ann');
    expect(result.isError).not.toBe(true);

    const asks = heard.filter(({ method }) => method === 'elicitation/create').length;
    const told = heard.filter((message) => message.result?.resultType === 'input_required');
    const requests = end.heard.filter(({ method }) => method === 'tools/call').length;
    expect([asks, told.length, requests]).toEqual(isLegacy(name) ? [1, 0, 1] : [0, 1, 2]);
    // A legacy server is asked once, whatever the client had to do; a modern one is asked again with the answer.
    expect(upstream.sent.length).toBe(cell.era === 'legacy' ? 1 : 2);
    for (const { result: shown } of told) expect(shown?.requestState).toMatch(/^[\w-]{100,}$/);
    expect(calls.size).toBe(0);
    await client.close();
  });

  if (cell.transport === 'memory')
    test('each of two clients gets only the questions about its own call', async () => {
      const [, legacy] = clients[0] as (typeof clients)[0];
      const [, modern] = clients[2] as (typeof clients)[0];
      const both = [await meet(legacy, 'ann'), await meet(modern, 'bob')] as const;
      const results = await Promise.all(
        both.map(({ client }) => client.request('tools/call', { name: 'ask', arguments: {} })),
      );
      expect(results.map((result) => JSON.stringify(result).includes('Ann'))).toEqual([true, true]);
      const questions = (heard: Heard) =>
        heard.filter((message) => /What is your name/.test(JSON.stringify(message))).length;
      expect(both.map(({ heard }) => questions(heard))).toEqual([1, 1]);
      for (const { client } of both) await client.close();
    });

  if (cell.era === 'legacy' && cell.transport === 'memory')
    test('a parked call can only be resumed by its own client', async () => {
      const upstream = new Upstream();
      upstream.session = await bench.connect({ handlers: { request: upstream.take } });
      const [mine, theirs] = [new GatewayEnd(bridge, upstream, 'ann'), new GatewayEnd(bridge, upstream, 'bob')];
      const replies: Record<string, { result?: Record<string, unknown>; error?: unknown }> = {};
      for (const each of [mine, theirs])
        each.onmessage = (message) => {
          replies[message.id] = message;
        };
      const _meta = { 'io.modelcontextprotocol/clientCapabilities': { elicitation: {} } };
      const call = { name: 'ask', arguments: {}, _meta };
      await mine.send({ id: 'first', method: 'tools/call', params: call });
      await eventually('the client is asked', () => replies.first !== undefined);
      const { requestState, inputRequests } = replies.first?.result ?? {};
      const key = Object.keys(inputRequests as object)[0] as string;
      const inputResponses = { [key]: { action: 'accept', content: { name: 'Eve' } } };
      const back = { ...call, inputResponses, requestState };
      await theirs.send({ id: 'stolen', method: 'tools/call', params: back });
      await mine.send({ id: 'other', method: 'tools/call', params: { ...back, arguments: { a: 1 } } });
      await eventually('both are refused', () => replies.stolen !== undefined && replies.other !== undefined);
      expect([replies.stolen?.error, replies.other?.error]).toEqual([
        expect.objectContaining({ code: -32602, data: expect.objectContaining({ fault: 'other_caller' }) }),
        expect.objectContaining({ code: -32602, data: expect.objectContaining({ fault: 'other_request' }) }),
      ]);
      await mine.send({ id: 'back', method: 'tools/call', params: back });
      await eventually('the call ends', () => replies.back !== undefined);
      expect(JSON.stringify(replies.back?.result)).toContain('Eve');
      expect([upstream.sent.length, calls.size]).toEqual([1, 0]);
    });
});
