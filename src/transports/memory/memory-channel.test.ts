import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { expect, test } from 'vitest';
import { RecordingListener, rawRequest, request } from '../../../test/fakes/http-listener.js';
import { LIMITS } from '../../kernel/limits.js';
import { createMemoryLink } from './memory-channel.js';

const tick = () => new Promise<void>((resolve) => setImmediate(resolve));

function linked() {
  const { channel, server } = createMemoryLink();
  const heard = new RecordingListener();
  channel.start(heard);
  const got: Array<{ id: number; method: string }> = [];
  server.onmessage = (message) => got.push(message);
  return { channel, server, heard, got };
}

test('frames arrive in order, after send has returned, and only after the server has started', async () => {
  const { channel, server, got } = linked();
  const frames = Array.from({ length: 100 }, (_, i) => request(`m${i}`));
  for (const frame of frames) expect(channel.send(frame)).toBeUndefined();
  await tick();
  expect(got).toEqual([]);
  await server.start();
  await tick();
  expect(got.map((message) => message.method)).toEqual(frames.map((frame) => frame.method));
  expect(frames.every((frame) => frame.phase === 'written')).toBe(true);
});

test('send delivers nothing before it returns', async () => {
  const { channel, server, got } = linked();
  await server.start();
  const frame = request('later');
  channel.send(frame);
  expect([got.length, frame.phase]).toEqual([0, 'queued']);
});

test('objects, text and bytes of the server arrive in order; junk is counted', async () => {
  const { channel, server, heard } = linked();
  await server.start();
  void server.send({ jsonrpc: '2.0', id: 1, result: { n: 1 } });
  void server.send('{"jsonrpc":"2.0","id":2,"result":{"n":12345678901234567890}}');
  void server.send(Buffer.from('not json'));
  void server.send(Buffer.from('{"jsonrpc":"2.0","id":3,"result":{}}'));
  expect(heard.messages).toEqual([]);
  await tick();
  expect(heard.messages.map((message) => [message.id, message.text])).toEqual([
    [1, '{"n":1}'],
    [2, '{"n":12345678901234567890}'],
    [3, '{}'],
  ]);
  expect(channel.counters.junk).toBe(1);
});

test('a waiting frame can be withdrawn; a delivered frame needs a cancellation', async () => {
  const { channel, server, got } = linked();
  const [first, second] = [request('first'), request('second')];
  channel.send(first);
  channel.send(second);
  expect(channel.withdraw(first)).toBe('unsent');
  await server.start();
  await tick();
  expect(got.map((message) => message.method)).toEqual(['second']);
  expect(channel.withdraw(second)).toBe('notify');
});

test('both directions are bounded', async () => {
  const { channel, server } = linked();
  const big = () => rawRequest('big', Buffer.alloc(LIMITS.outboundBytes / 2));
  expect(channel.send(big())).toBeUndefined();
  expect(channel.send(big())).toMatchObject({
    code: 'overloaded',
    details: { reason: 'backpressure', execution: 'not_executed' },
  });
  await expect(server.send(Buffer.alloc(LIMITS.frameBytes + 1))).rejects.toMatchObject({ code: 'result_too_large' });
});

test('messages sent before the close come first, and closed is reported once', async () => {
  const { channel, server, heard } = linked();
  let closes = 0;
  server.onclose = () => closes++;
  void server.send({ jsonrpc: '2.0', id: 1, result: {} });
  void server.close();
  await tick();
  await channel.close();
  expect(heard.messages).toHaveLength(1);
  expect([heard.ends.length, heard.late, closes]).toEqual([1, 0, 1]);
  expect(channel.send(request('late'))).toMatchObject({ code: 'transport', details: { execution: 'not_executed' } });
  await expect(server.send({})).rejects.toMatchObject({ code: 'transport' });
});

test('a handler that throws loses only its own frame', async () => {
  const { channel, server, got } = linked();
  const errors: Error[] = [];
  server.onerror = (error) => errors.push(error);
  server.onmessage = (message) => {
    if (message.method === 'bad') throw new Error('boom');
    got.push(message);
  };
  await server.start();
  channel.send(request('bad'));
  channel.send(request('good'));
  await tick();
  expect([got.length, errors.length]).toEqual([1, 1]);
});

test('a server of the MCP SDK works on a memory channel', async () => {
  const { channel, server } = createMemoryLink();
  const heard = new RecordingListener();
  channel.start(heard);
  const mcp = new McpServer({ name: 'in-process', version: '1' });
  mcp.registerTool('hello', {}, async () => ({ content: [{ type: 'text', text: 'hi' }] }));
  await mcp.connect(server);
  const initialize = request('initialize', {
    protocolVersion: '2025-11-25',
    capabilities: {},
    clientInfo: { name: 'test', version: '1' },
  });
  channel.send(initialize);
  await heard.settled(initialize);
  const call = request('tools/call', { name: 'hello' });
  channel.send(call);
  await heard.settled(call);
  expect(JSON.parse(heard.answerTo(call)?.text ?? '')).toEqual({ content: [{ type: 'text', text: 'hi' }] });
  await mcp.close();
  expect(heard.ends).toHaveLength(1);
});
