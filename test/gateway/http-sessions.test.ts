/** Abandoned legacy sessions over real HTTP: they are evicted for new clients and hold almost no memory. */
import { describe, expect, test } from 'vitest';
import type { ClientSession } from '../../src/gateway/exchange.js';
import { eventually } from '../eventually.js';
import { connectSdk1Client, connectSdk2Client } from '../fixtures/sdk-clients.js';
import { eventsIn, type Harness, listen, notice, openSession, rawSocket, rpc, send, start } from './http-harness.js';

/** Runs `count` jobs, at most `atOnce` at a time; resolves with their results in order. */
async function pooled<T>(count: number, atOnce: number, job: (i: number) => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  let next = 0;
  const worker = async () => {
    while (next < count) {
      const i = next++;
      results[i] = await job(i);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
  return results;
}

/** Opens legacy sessions with pipelined requests on one connection, and abandons them. Resolves with the headers of each session. */
async function abandonSessions(port: number, count: number): Promise<Record<string, string>[]> {
  const socket = rawSocket(port);
  const request = (body: string, ...lines: string[]) =>
    [
      ...['POST /mcp HTTP/1.1', 'Host: localhost', 'Content-Type: application/json', `Content-Length: ${body.length}`],
      ...[...lines, '', body],
    ].join('\r\n');
  let text = '';
  socket.setEncoding('latin1');
  socket.on('data', (chunk) => {
    text += chunk;
  });
  const found = (pattern: RegExp) => [...text.matchAll(pattern)];
  const initialize = rpc(0, 'initialize', { protocolVersion: '2025-11-25', capabilities: {} });
  socket.write(request(initialize).repeat(count));
  const ids = await eventually(
    'all are opened',
    () => {
      const all = found(/Mcp-Session-Id: ([\w-]+)\r\n/g);
      return all.length === count && all.map(([, id]) => id as string);
    },
    60_000,
  );
  for (const id of ids) socket.write(request(notice('notifications/initialized'), `Mcp-Session-Id: ${id}`));
  await eventually('all are initialized', () => found(/HTTP\/1\.1 202 /g).length === count, 60_000);
  socket.destroy();
  return ids.map((id) => ({ 'mcp-session-id': id, 'mcp-protocol-version': '2025-11-25' }));
}

describe('W17 a full session table', () => {
  const answerTools = ({ router }: Harness) =>
    router.answers.set('tools/call', (exchange) => exchange.succeed('{"content":[{"type":"text","text":"done"}]}'));

  test('W17 with 1,000 abandoned sessions 200 clients, 50 at a time, all open a session and call a tool', async () => {
    const harness = await start({ authenticate: () => ({ id: 'ann', role: undefined, scopes: [] }) });
    answerTools(harness);
    const { port, ingress, url } = harness;
    const abandoned = await abandonSessions(port, 1_000);
    expect(ingress.counts.sessions).toBe(1_000);
    const sdkClients = [
      () => connectSdk1Client({ kind: 'streamable-http', url }, []),
      () => connectSdk2Client({ kind: 'streamable-http', url }, [], 'legacy'),
    ];
    const outcomes = await pooled(200, 50, async (i) => {
      try {
        const connect = i % 10 === 0 ? sdkClients[(i / 10) % 2] : undefined;
        if (connect) {
          const client = await connect();
          const result = await client.request('tools/call', { name: 'a', arguments: {} });
          await client.close();
          return JSON.stringify(result).includes('done') ? 'called' : 'no result';
        }
        const headers = await openSession(port);
        const { status, text } = await send(port, { headers, body: rpc(1, 'tools/call', { name: 'a' }) });
        return status === 200 && text.includes('done') ? 'called' : `tools/call: ${status}`;
      } catch (error) {
        return String(error);
      }
    });
    expect(outcomes.filter((outcome) => outcome !== 'called')).toEqual([]);
    expect(ingress.counts.sessions).toBeLessThanOrEqual(1_000);
    // The clients of evicted sessions get 404 and start again.
    const [first = {}] = abandoned;
    expect((await send(port, { headers: first, body: rpc(1, 'ping') })).status).toBe(404);
    const again = await openSession(port);
    expect((await send(port, { headers: again, body: rpc(1, 'tools/call', { name: 'a' }) })).status).toBe(200);
  }, 120_000);
});

describe('W18 memory of abandoned sessions', () => {
  const kinds = ['tools', 'prompts', 'resources'].map((list) => `notifications/${list}/list_changed`);
  const changeAll = (sessions: readonly ClientSession[], times: number) => {
    for (let i = 0; i < times; i++)
      for (const session of sessions) for (const kind of kinds) session.notify(kind, undefined);
  };

  test('W18 200 sessions, half of them with a lost stream, keep no event of 300 changes', async () => {
    const { port, ingress, router } = await start();
    await pooled(200, 10, async (i) => {
      const headers = await openSession(port);
      if (i % 2 === 0) (await listen(port, { method: 'GET', headers })).hangUp();
    });
    await eventually('the loss of the streams is noticed', () => ingress.counts.streams === 0);
    changeAll(router.sessions, 300);
    expect([ingress.counts.sessions, ingress.storedEvents]).toEqual([200, { events: 0, bytes: 0 }]);
  });

  test('W18 updates of resources are stored for a lost stream, but not before the first stream', async () => {
    const { port, ingress, router } = await start();
    const headers = await openSession(port);
    const [session] = router.sessions as [ClientSession];
    const update = (uri: string) => session.notify('notifications/resources/updated', JSON.stringify({ uri }));
    update('a://never-read');
    expect(ingress.storedEvents).toEqual({ events: 0, bytes: 0 });
    (await listen(port, { method: 'GET', headers })).hangUp();
    await eventually('the loss of the stream is noticed', () => ingress.counts.streams === 0);
    update('a://lost');
    expect(ingress.storedEvents.events).toBe(1);
    expect(ingress.storedEvents.bytes).toBeGreaterThan(100);
    const stream = await listen(port, { method: 'GET', headers });
    expect(await stream.until((text) => text.includes('a://lost'))).not.toContain('never-read');
    await send(port, { method: 'DELETE', headers });
    expect(ingress.storedEvents).toEqual({ events: 0, bytes: 0 });
  });

  test('W18 a client whose stream was lost gets each changed list once, with and without Last-Event-ID', async () => {
    const { port, ingress, router } = await start();
    const headers = await openSession(port);
    const session = router.sessions[0] as ClientSession;
    const methods = (text: string) => eventsIn(text).flatMap(({ data }) => (data ? [JSON.parse(data).method] : []));
    const reconnected = async (more: Record<string, string> = {}) => {
      const stream = await listen(port, { method: 'GET', headers: { ...headers, ...more } });
      // Sent after the notifications, so that all of them have arrived.
      session.notify('notifications/end', '{}');
      const text = await stream.until((all) => all.includes('notifications/end'));
      stream.hangUp();
      await eventually('the loss of the stream is noticed', () => ingress.counts.streams === 0);
      return text;
    };
    changeAll([session], 300);
    const first = await reconnected();
    expect(methods(first)).toEqual([...kinds, 'notifications/end']);
    expect(methods(await reconnected())).toEqual(['notifications/end']);
    changeAll([session], 300);
    expect(methods(await reconnected())).toEqual([...kinds, 'notifications/end']);
    // Lost on the way: the client has received none of the later events.
    const seen = eventsIn(first).at(-1)?.id ?? '';
    const again = methods(await reconnected({ 'last-event-id': seen }));
    expect(again.filter((method) => kinds.includes(method))).toEqual(kinds);
  });
});
