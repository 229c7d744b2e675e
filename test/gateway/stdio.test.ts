/**
 * The stdio ingress in a separate process, used over a real pipe by the official clients of both generations and with raw lines.
 */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, test } from 'vitest';
import { eventually } from '../eventually.js';
import { legacy, modern } from '../fakes/messages.js';
import {
  connectSdk1Client,
  connectSdk2Client,
  type Heard,
  type Json,
  type SdkClient,
} from '../fixtures/sdk-clients.js';

const script = fileURLToPath(new URL('../fakes/stdio-gateway.mjs', import.meta.url));
const target = { kind: 'stdio', command: process.execPath, args: [script], env: {} } as const;
const textOf = (result: Json) => (result.content as { text: string }[])[0]?.text;
const call = (client: SdkClient, name: string, args: Json = {}, options = {}) =>
  client.request('tools/call', { name, arguments: args }, options).then(textOf);

let client: SdkClient | undefined;
let child: ChildProcessWithoutNullStreams | undefined;
afterEach(async () => {
  await client?.close();
  client = undefined;
  child?.kill('SIGKILL');
  child = undefined;
});

const clients = [
  ['SDK 1.32', 'legacy 2025-11-25', (heard: Heard) => connectSdk1Client(target, heard)],
  ['SDK 2.4, legacy', 'legacy 2025-11-25', (heard: Heard) => connectSdk2Client(target, heard, 'legacy')],
  ['SDK 2.4, modern', 'modern 2026-07-28', (heard: Heard) => connectSdk2Client(target, heard, 'modern')],
] as const;

describe.each(clients)('%s', (_name, era, connect) => {
  const isModern = era.startsWith('modern');

  test('lists, calls, and gets progress', async () => {
    const heard: Heard = [];
    client = await connect(heard);
    const { tools } = (await client.request('tools/list')) as { tools: { name: string }[] };
    expect(tools.map(({ name }) => name)).toEqual(['echo']);
    expect(await call(client, 'era')).toBe(era);
    expect(await call(client, 'echo', { text: 'grüße\n\u2028' })).toBe('grüße\n\u2028');
    expect(await call(client, 'progress', {}, { onprogress: () => {} })).toBe('done');
    expect(heard.filter(({ method }) => method === 'notifications/progress')).toHaveLength(1);
    await expect(call(client, 'nothing')).rejects.toMatchObject({ code: -32602 });
    await expect(client.request('no/such')).rejects.toMatchObject({ code: -32601 });
  });

  test(isModern ? 'gets no question' : 'gets the question of a call, and its answer reaches that call', async () => {
    const heard: Heard = [];
    client = await connect(heard);
    const asked = client;
    const answers = await Promise.all(Array.from({ length: 5 }, () => call(asked, 'ask')));
    expect(answers).toEqual(Array.from({ length: 5 }, () => (isModern ? 'cannot ask' : 'Ann')));
    expect(heard.filter(({ method }) => method === 'elicitation/create')).toHaveLength(isModern ? 0 : 5);
  });

  test('is notified of changes', async () => {
    const heard: Heard = [];
    client = await connect(heard);
    await client.listen();
    await call(client, 'change');
    await eventually('the change is heard', () =>
      heard.some(({ method }) => method === 'notifications/tools/list_changed'),
    );
  });

  test('an abandoned call ends, and the next calls are served', async () => {
    client = await connect([]);
    const abort = new AbortController();
    const waiting = call(client, 'wait', { text: 'w' }, { signal: abort.signal });
    expect(await call(client, 'echo', { text: 'meanwhile' })).toBe('meanwhile');
    abort.abort();
    await expect(waiting).rejects.toThrow();
    expect(await call(client, 'echo', { text: 'after' })).toBe('after');
  });

  test('large answers and many calls at once all arrive', async () => {
    client = await connect([]);
    const caller = client;
    const texts = Array.from({ length: 60 }, (_, i) => `${i}`.padEnd(i % 10 === 0 ? 1_000_000 : 10, 'x'));
    expect(await Promise.all(texts.map((text) => call(caller, 'echo', { text })))).toEqual(texts);
  });
});

/** A client that writes arbitrary lines. */
function open() {
  const started = spawn(process.execPath, [script], { stdio: 'pipe', env: { ...process.env, REPORT: '1' } });
  child = started;
  const lines: (Json & { id?: unknown; method?: string })[] = [];
  const reader = createInterface({ input: started.stdout }).on('line', (line) => lines.push(JSON.parse(line)));
  let errors = '';
  started.stderr.on('data', (chunk) => {
    errors += chunk;
  });
  const send = (...messages: unknown[]) =>
    started.stdin.write(messages.map((message) => `${JSON.stringify(message)}\n`).join(''));
  const end = async () => {
    started.stdin.end();
    const [code] = await once(started, 'exit');
    return { code, ...JSON.parse(errors) };
  };
  return { send, lines, reader, started, end };
}

test('both eras share one pipe; at its end requests have ten seconds, then they are aborted', {
  timeout: 60_000,
}, async () => {
  const { send, lines, end } = open();
  send(modern(1, 'tools/call', { name: 'era', arguments: {} }));
  send(legacy(2, 'initialize', { protocolVersion: '2025-06-18', capabilities: {} }));
  send({ jsonrpc: '2.0', method: 'notifications/initialized' }, { jsonrpc: '2.0', method: 'notifications/x' });
  send(legacy(3, 'tools/call', { name: 'era', arguments: {} }), modern(4, 'subscriptions/listen'));
  send(legacy(5, 'tools/call', { name: 'wait', arguments: { text: 'w5' } }));
  send(modern(6, 'tools/call', { name: 'wait', arguments: { text: 'w6' } }));
  send({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 6 } });
  send(modern(7, 'tools/call', { name: 'era', arguments: {} }));
  await eventually('all is answered', () => lines.some(({ id }) => id === 7));
  expect(lines.filter(({ id }) => id !== undefined).map(({ id }) => id)).toEqual([1, 2, 3, 7]);
  const texts = lines.flatMap(({ result }) => ((result as Json | undefined)?.content ? [textOf(result as Json)] : []));
  expect(texts).toEqual(['modern 2026-07-28', 'legacy 2025-06-18', 'modern 2026-07-28']);
  expect(await end()).toEqual({
    code: 0,
    opened: 1,
    aborted: ['w6', 'listen', 'w5'],
    inFlight: 0,
  });
});

test('the input of a client that stops reading is paused, and nothing is lost when it continues', async () => {
  const { send, lines, started, reader, end } = open();
  send(modern('first', 'tools/call', { name: 'echo', arguments: { text: '' } }));
  await eventually('it runs', () => lines.length === 1);
  reader.pause();
  const text = 'x'.repeat(100_000);
  const count = 200;
  let accepted = 0;
  for (let i = 0; i < count; i++) {
    if (send(modern(i, 'tools/call', { name: 'echo', arguments: { text } }))) accepted++;
  }
  // Twenty megabytes: the pipe and both ends' buffers are full long before, and our own stdin backs up.
  await eventually('it is no longer read from', () => started.stdin.writableLength > 10_000_000);
  expect(accepted).toBeLessThan(count);
  reader.resume();
  await eventually('all is answered', () => lines.length === count + 1, 20_000);
  expect(new Set(lines.map(({ id }) => id)).size).toBe(count + 1);
  expect(lines.filter(({ error }) => error)).toEqual([]);
  expect(await end()).toMatchObject({ code: 0, inFlight: 0 });
});

test('a client that is gone ends the process', async () => {
  const { send, lines, started } = open();
  send(modern(1, 'tools/call', { name: 'echo', arguments: { text: '' } }));
  await eventually('it runs', () => lines.length === 1);
  started.stdout.destroy();
  send(modern(2, 'tools/call', { name: 'echo', arguments: { text: '' } }));
  const [code] = await once(started, 'exit');
  expect(code).toBe(0);
});
