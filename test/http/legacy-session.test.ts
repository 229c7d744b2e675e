/**
 * A legacy HTTP session from opening to loss, against a server that is as strict as the protocol allows: nothing runs
 * before `initialized`, nothing without the session, and executed calls are recorded.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { parseServerSpec } from '../../src/config/server-spec.js';
import { isHostError } from '../../src/kernel/errors.js';
import { Connector } from '../../src/session/connector.js';
import { eventually } from '../eventually.js';

interface Message {
  readonly id?: number;
  readonly method: string;
  readonly params?: { readonly arguments?: { readonly nonce?: string } };
}

const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/** The faults of the server. */
interface Quirks {
  readonly onCall?: (message: Message, response: ServerResponse) => boolean;
  readonly onGet?: (request: IncomingMessage, response: ServerResponse) => boolean;
  readonly initializedDelayMs?: number;
  readonly initializeDelayMs?: number;
}

async function strictServer(quirks: Quirks = {}) {
  const seen = {
    executed: [] as string[],
    early: 0,
    withoutSession: 0,
    initializes: 0,
    gets: [] as (string | undefined)[],
  };
  let session: string | undefined;
  let isOpen = false;
  const answer = (response: ServerResponse, id: number | undefined, result: unknown, headers = {}) =>
    response
      .writeHead(200, { 'content-type': 'application/json', ...headers })
      .end(JSON.stringify({ jsonrpc: '2.0', id, result }));
  const handle = (message: Message, request: IncomingMessage, response: ServerResponse) => {
    if (message.method === 'server/discover') return response.writeHead(400).end();
    if (message.method === 'initialize') {
      session = `s${++seen.initializes}`;
      isOpen = false;
      const result = {
        protocolVersion: '2025-11-25',
        capabilities: { tools: {} },
        serverInfo: { name: 's', version: '1' },
      };
      return setTimeout(
        () => answer(response, message.id, result, { 'mcp-session-id': session }),
        quirks.initializeDelayMs ?? 0,
      );
    }
    const given = request.headers['mcp-session-id'];
    if (given === undefined) {
      seen.withoutSession++;
      return response.writeHead(400).end();
    }
    if (given !== session) return response.writeHead(404).end();
    if (message.method === 'notifications/initialized') {
      return setTimeout(() => {
        isOpen = true;
        response.writeHead(202).end();
      }, quirks.initializedDelayMs ?? 0);
    }
    if (!isOpen) seen.early++;
    if (message.method !== 'tools/call') return answer(response, message.id, {});
    seen.executed.push(message.params?.arguments?.nonce ?? '');
    return quirks.onCall?.(message, response) || answer(response, message.id, { content: [] });
  };
  const server = createServer((request, response) => {
    if (request.method === 'GET') {
      seen.gets.push(request.headers['mcp-session-id'] as string | undefined);
      if (quirks.onGet?.(request, response)) return;
      if (request.headers['mcp-session-id'] !== session) return void response.writeHead(404).end();
      return void response.writeHead(405).end();
    }
    if (request.method === 'DELETE') return void response.writeHead(200).end();
    let body = '';
    request
      .on('data', (chunk) => (body += chunk))
      .on('end', () => handle(JSON.parse(body) as Message, request, response));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const connector = new Connector({ client: { name: 'test', version: '0', capabilities: {} } });
  closers.push(async () => {
    await connector.close();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`;
  const open = () => connector.connect(parseServerSpec({ name: 'strict', url }));
  const forget = () => {
    session = undefined;
  };
  return { seen, open, forget };
}

const within = (ms = 10_000) => ({ deadlineAtMs: performance.now() + ms });

describe('order', () => {
  test('no call overtakes the messages that open the session, neither the first nor those after a renewal', async () => {
    const { seen, open, forget } = await strictServer({ initializedDelayMs: 50 });
    const session = await open();
    await session.callTool('x', { nonce: 'first' }, within());
    forget();
    await Promise.all([1, 2, 3].map((nonce) => session.callTool('x', { nonce: String(nonce) }, within())));
    expect(seen).toMatchObject({ early: 0, initializes: 2 });
    expect(seen.executed.sort()).toEqual(['1', '2', '3', 'first']);
  });

  test('a call made during the renewal waits for it, and is sent in the new session', async () => {
    const { seen, open, forget } = await strictServer({ initializeDelayMs: 100 });
    const session = await open();
    forget();
    const first = session.callTool('x', { nonce: 'a' }, within());
    await eventually('the renewal has begun', () => seen.initializes === 2);
    const second = session.callTool('x', { nonce: 'b' }, within());
    expect((await Promise.all([first, second])).map(({ kind }) => kind)).toEqual(['result', 'result']);
    expect(seen.withoutSession).toBe(0);
  });
});

describe('a call that may have run is not sent again', () => {
  test('when the stream of its answer breaks and the session is gone', async () => {
    const { seen, open, forget } = await strictServer({
      onCall: (_message, response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write('id: 1\nretry: 10\ndata: \n\n', () => {
          forget();
          response.destroy();
        });
        return true;
      },
    });
    const session = await open();
    const error: unknown = await session.callTool('x', { nonce: 'once' }, within()).catch((thrown: unknown) => thrown);
    expect(isHostError(error) && error.toJSON()).toMatchObject({
      code: 'transport',
      execution: 'uncertain',
      retryable: false,
    });
    expect(seen.executed).toEqual(['once']);
  });
});

describe('the standalone stream of the server', () => {
  test('is requested again while the server still holds the broken stream', async () => {
    let conflicts = 0;
    const { seen, open } = await strictServer({
      onGet: (_request, response) => {
        response.writeHead(conflicts++ === 0 ? 409 : 405).end();
        return true;
      },
    });
    await open();
    await eventually('the second try', () => seen.gets.length >= 2);
  });

  test('leads to a renewal if the session was forgotten without any request', async () => {
    const streams: ServerResponse[] = [];
    const { seen, open, forget } = await strictServer({
      onGet: (_request, response) => {
        if (streams.length > 0) return false;
        streams.push(response.writeHead(200, { 'content-type': 'text/event-stream' }));
        response.write('retry: 10\ndata: \n\n');
        return true;
      },
    });
    const session = await open();
    await eventually('the stream is open', () => streams.length === 1);
    forget();
    streams[0]?.destroy();
    await eventually('the renewal', () => seen.initializes === 2);
    await session.callTool('x', { nonce: 'after' }, within());
    expect(seen.executed).toEqual(['after']);
  });
});
