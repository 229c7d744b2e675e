/** Clients that others wrote, of both SDK generations and both eras, against the ingress with a small router. */
import { Client as Client1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as Transport1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { describe, expect, test } from 'vitest';
import type { Exchange } from '../../src/gateway/exchange.js';
import { memberText } from '../../src/wire/json-members.js';
import { eventually } from '../eventually.js';
import { connectSdk1Client, connectSdk2Client, type Message, type SdkClient } from '../fixtures/sdk-clients.js';
import { type Harness, start } from './http-harness.js';

const principal = { id: 'ann', role: undefined, scopes: [] };
const far = Number.MAX_SAFE_INTEGER;

/** Answers like a server, in the format of the client's era. */
function serve({ router }: Harness): void {
  const complete = (exchange: Exchange) => (exchange.client.era === 'modern' ? '"resultType":"complete",' : '');
  const cached = (exchange: Exchange) => (exchange.client.era === 'modern' ? '"ttlMs":0,"cacheScope":"private",' : '');
  router.answers.set('server/discover', (exchange) =>
    exchange.succeed(
      `{${complete(exchange)}${cached(exchange)}"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},`,
      '"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"}}}',
    ),
  );
  router.answers.set('tools/list', (exchange) =>
    exchange.succeed(
      `{${complete(exchange)}${cached(exchange)}"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`,
    ),
  );
  router.answers.set('tools/call', (exchange) => {
    const args = exchange.params && memberText(exchange.params, 'arguments');
    const done = (text: string) =>
      exchange.succeed(`{${complete(exchange)}"content":[{"type":"text","text":${JSON.stringify(text)}}]}`);
    if (args?.includes('progress')) {
      const meta = exchange.params && memberText(exchange.params, '_meta');
      const token = meta && memberText(Buffer.from(meta), 'progressToken');
      exchange.notify('notifications/progress', `{"progressToken":${token},"progress":1}`);
      // In a later turn: if both came in one chunk, the clients would lose the first.
      setImmediate(() => done('progressed'));
    } else if (args?.includes('ask'))
      void exchange
        .ask?.('elicitation/create', '{"message":"?","requestedSchema":{"type":"object","properties":{}}}', {
          deadlineAtMs: far,
        })
        .then(({ bytes }) => done(bytes.toString()));
    else if (!args?.includes('hang')) done(args ?? '');
  });
  router.answers.set('subscriptions/listen', (exchange) =>
    exchange.notify(
      'notifications/subscriptions/acknowledged',
      `{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":${exchange.idText}}}`,
    ),
  );
}

const clients: Readonly<Record<string, (url: string, heard: Message[]) => Promise<SdkClient>>> = {
  'SDK 1.32': (url, heard) => connectSdk1Client({ kind: 'streamable-http', url }, heard),
  'SDK 2.4, legacy': (url, heard) => connectSdk2Client({ kind: 'streamable-http', url }, heard, 'legacy'),
  'SDK 2.4, modern': (url, heard) => connectSdk2Client({ kind: 'streamable-http', url }, heard, 'modern'),
};

async function connected(name: string) {
  const harness = await start({ authenticate: () => principal });
  serve(harness);
  const heard: Message[] = [];
  const client = await (clients[name] as (typeof clients)[string])(harness.url, heard);
  return { harness, heard, client };
}

const textOf = (result: Record<string, unknown>) => (result.content as [{ text: string }])[0].text;

describe.each(Object.keys(clients))('%s', (name) => {
  const isModern = name.endsWith('modern');

  test('connects, lists, calls, gets progress and cancels', async () => {
    const { harness, heard, client } = await connected(name);
    const { router, ingress } = harness;
    if (name !== 'SDK 1.32') expect(client.version).toBe(isModern ? '2026-07-28' : '2025-11-25');
    expect((await client.request('tools/list')).tools).toHaveLength(1);
    const result = await client.request('tools/call', { name: 'echo', arguments: { a: 'grüß' } });
    expect(textOf(result)).toBe('{"a":"grüß"}');
    const told: unknown[] = [];
    const progressed = await client.request(
      'tools/call',
      { name: 'echo', arguments: { progress: true } },
      { onprogress: () => told.push(1) },
    );
    expect([textOf(progressed), told.length]).toEqual(['progressed', 1]);
    expect(heard.filter(({ method }) => method === 'notifications/progress')).toHaveLength(1);
    // The modern client keeps the body of a 404 in its message.
    const unknown = isModern ? { message: expect.stringContaining('-32601') } : { code: -32601 };
    await expect(client.request('no/such')).rejects.toMatchObject(unknown);

    const given = new AbortController();
    const hanging = client.request('tools/call', { name: 'echo', arguments: { hang: true } }, { signal: given.signal });
    await router.until(() => router.handled.at(-1)?.params?.includes('hang') ?? false);
    const exchange = router.handled.at(-1) as Exchange;
    given.abort();
    await expect(hanging).rejects.toThrow();
    await eventually('the call is cancelled', () => exchange.signal.aborted);
    expect((await client.request('tools/list')).tools).toHaveLength(1);
    await client.close();
    await eventually('nothing is open', () => ingress.counts.exchanges === 0 && ingress.counts.streams === 0);
    expect(harness.problems).toEqual([]);
  });

  test('gets notifications that belong to no request', async () => {
    const { harness, heard, client } = await connected(name);
    const { router, ingress } = harness;
    await client.listen();
    await eventually('a stream is open', () => ingress.counts.streams === 1);
    if (isModern) router.handled.at(-1)?.notify('notifications/tools/list_changed', listChanged(router.handled.at(-1)));
    else router.sessions[0]?.notify('notifications/tools/list_changed', undefined);
    await eventually('the notification arrives', () =>
      heard.some(({ method }) => method === 'notifications/tools/list_changed'),
    );
    await client.close();
  });
});

test.each(['SDK 1.32', 'SDK 2.4, legacy'])('%s is asked on behalf of a call', async (name) => {
  const { client } = await connected(name);
  const result = await client.request('tools/call', { name: 'echo', arguments: { ask: true } });
  expect(JSON.parse(textOf(result))).toEqual({ action: 'accept', content: { name: 'Ann' } });
  await client.close();
});

const listChanged = (exchange: Exchange | undefined) =>
  `{"_meta":{"io.modelcontextprotocol/subscriptionId":${exchange?.idText}}}`;

test('SDK 1.32 ends its session, with the key it was given', async () => {
  const harness = await start();
  serve(harness);
  const transport = new Transport1(new URL(harness.url), {
    requestInit: { headers: { authorization: 'Bearer key-of-ann' } },
  });
  const client = new Client1({ name: 't', version: '1' });
  await client.connect(transport as never);
  expect(harness.ingress.counts.sessions).toBe(1);
  await transport.terminateSession();
  expect(harness.ingress.counts.sessions).toBe(0);
  await client.close();
});

test('SDK 1.32 loses its stream in the middle of a call, and gets its answer', async () => {
  const harness = await start({ authenticate: () => principal, limits: { bufferedBytes: 64 * 1024 } });
  serve(harness);
  const { router } = harness;
  const transport = new Transport1(new URL(harness.url), {
    reconnectionOptions: {
      initialReconnectionDelay: 10,
      maxReconnectionDelay: 10,
      reconnectionDelayGrowFactor: 1,
      maxRetries: 3,
    },
    fetch: async (url, init) => {
      const response = await fetch(url, init);
      return String(init?.body).includes('"hang"') ? cutAfterFirstChunk(response) : response;
    },
  });
  const client = new Client1({ name: 't', version: '1' });
  await client.connect(transport as never);
  const call = client.callTool({ name: 'echo', arguments: { hang: true } });
  await router.until(() => router.handled.at(-1)?.params?.includes('hang') ?? false);
  const exchange = router.handled.at(-1) as Exchange;
  exchange.notify('notifications/message', '{"level":"info","data":1}');
  await new Promise((resolve) => setImmediate(resolve));
  exchange.succeed('{"content":[{"type":"text","text":"after all"}]}');
  expect(textOf((await call) as Record<string, unknown>)).toBe('after all');
  expect(exchange.signal.aborted).toBe(false);
  await client.close();
});

/** Like a broken network: the first piece arrives, then the connection is lost. */
function cutAfterFirstChunk(response: Response): Response {
  const reader = response.body?.getReader();
  const body = new ReadableStream({
    async start(controller) {
      const first = await reader?.read();
      controller.enqueue(first?.value);
      await reader?.cancel();
      controller.error(new TypeError('planted: connection lost'));
    },
  });
  return new Response(body, { status: response.status, headers: response.headers });
}
