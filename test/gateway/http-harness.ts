/**
 * An ingress on a real port, with a router that records requests and answers from a table, and clients that control every byte.
 */

import { request as httpRequest } from 'node:http';
import { connect, type Socket } from 'node:net';
import { afterEach } from 'vitest';
import type { Client, ClientSession, Exchange, MirroredHeader, Router } from '../../src/gateway/exchange.js';
import { createHttpIngress, type HttpIngress, type HttpIngressOptions } from '../../src/gateway/http/http-ingress.js';
import { systemClock } from '../../src/kernel/clock.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { newId, seededRandom } from '../../src/kernel/random.js';
import type { Principal } from '../../src/policy/operation.js';
import { META } from '../fakes/messages.js';

export { META };

export const key = 'Bearer key-of-ann';
const keys = new Map<string | undefined, Principal>([
  [key, { id: 'ann', role: undefined, scopes: [] }],
  ['Bearer key-of-bob', { id: 'bob', role: undefined, scopes: [] }],
  ['Bearer key-of-cyd', { id: 'cyd', role: 'reader', scopes: [] }],
]);

export class FakeRouter implements Router {
  readonly handled: Exchange[] = [];
  readonly sessions: ClientSession[] = [];
  /** Ids of sessions that ended before they were open. */
  readonly unopened: string[] = [];
  readonly mirrored = new Map<string, readonly MirroredHeader[]>();
  /** Answers by method. Other methods get an empty result. */
  readonly answers = new Map<string, (exchange: Exchange) => void>([
    ['initialize', (exchange) => exchange.succeed(initializeResult(exchange.client.version))],
    ['no/such', (exchange) => exchange.fail({ code: -32601, message: 'no such method' })],
  ]);
  #wake: Array<() => void> = [];

  /** Number of requests that passed the guards. */
  get reached(): number {
    return this.handled.length + this.sessions.length;
  }

  hasEndpoint = (endpoint: { kind: string; server?: string }): boolean =>
    endpoint.kind !== 'server' || endpoint.server === 'alpha';

  handle(exchange: Exchange): void {
    this.handled.push(exchange);
    const answer = this.answers.get(exchange.method);
    if (answer) answer(exchange);
    else exchange.succeed('{}');
    this.#changed();
  }

  opened(session: ClientSession): void {
    this.sessions.push(session);
    this.#changed();
  }

  endedBeforeOpen({ id }: Pick<Client, 'id'>): void {
    this.unopened.push(id);
  }

  mirroredArguments = (_endpoint: unknown, _principal: unknown, tool: string) => this.mirrored.get(tool);

  async until(condition: () => boolean): Promise<void> {
    while (!condition()) await new Promise<void>((resolve) => this.#wake.push(resolve));
  }

  #changed(): void {
    const wake = this.#wake;
    this.#wake = [];
    for (const resolve of wake) resolve();
  }
}

const initializeResult = (version: string): string =>
  JSON.stringify({
    protocolVersion: version,
    capabilities: { tools: {}, logging: {} },
    serverInfo: { name: 'fake', version: '1' },
  });

export interface Harness {
  readonly router: FakeRouter;
  readonly ingress: HttpIngress;
  readonly url: string;
  readonly port: number;
  readonly problems: unknown[];
}

const toClose: Array<() => unknown> = [];
afterEach(async () => {
  for (const close of toClose.splice(0).reverse()) await close();
});

/** `options.router` replaces the recording router. */
export async function start(options: Partial<HttpIngressOptions> = {}): Promise<Harness> {
  const router = new FakeRouter();
  const problems: unknown[] = [];
  const ingress = await createHttpIngress({
    router,
    clock: systemClock,
    random: seededRandom(1),
    newId,
    authenticate: (authorization) => keys.get(authorization),
    onProblem: (error) => problems.push(error),
    ...options,
    listen: { host: '127.0.0.1', port: 0, ...options.listen },
  });
  const url = await ingress.listen();
  toClose.push(async () => {
    let isClosed = false;
    const closing = ingress.close(0).then(() => {
      isClosed = true;
    });
    while (!isClosed && options.clock instanceof FakeClock) await options.clock.advanceAsync(100);
    await closing;
  });
  return { router, ingress, url, port: Number(new URL(url).port), problems };
}

export interface Reply {
  readonly status: number;
  readonly headers: Record<string, string | string[] | undefined>;
  readonly text: string;
  readonly json: () => { id: unknown; result?: Record<string, unknown>; error?: { code: number; data?: unknown } };
}

export interface Sending {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: Record<string, string | string[]>;
  readonly body?: string | Buffer;
  readonly key?: string | undefined;
}

const usual = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };

/** Sends one request over a new connection, and resolves with its whole answer. */
export function send(port: number, sending: Sending = {}): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const request = httpRequest(
      {
        ...{ host: '127.0.0.1', port, method: sending.method ?? 'POST', path: sending.path ?? '/mcp', agent: false },
        headers: {
          ...(sending.body === undefined ? { accept: usual.accept } : usual),
          ...('key' in sending
            ? sending.key === undefined
              ? {}
              : { authorization: sending.key }
            : { authorization: key }),
          ...sending.headers,
        },
      },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('error', reject);
        response.on('end', () => {
          const text = Buffer.concat(chunks).toString();
          const { statusCode = 0, headers } = response;
          resolve({ status: statusCode, headers, text, json: () => JSON.parse(text) });
        });
      },
    );
    request.on('error', reject);
    request.end(sending.body);
  });
}

export const rpc = (id: unknown, method: string, params?: unknown): string =>
  JSON.stringify({ jsonrpc: '2.0', id, method, ...(params === undefined ? {} : { params }) });

export const notice = (method: string, params?: unknown): string =>
  JSON.stringify({ jsonrpc: '2.0', method, ...(params === undefined ? {} : { params }) });

/** A modern request with its required headers. */
export const modern = (
  port: number,
  method: string,
  params: Record<string, unknown> = {},
  headers: Record<string, string> = {},
  id: unknown = 1,
): Promise<Reply> =>
  send(port, {
    body: rpc(id, method, { ...params, _meta: META }),
    headers: modernHeaders(method, params, headers),
  });

export const modernHeaders = (
  method: string,
  params: Record<string, unknown> = {},
  headers: Record<string, string> = {},
): Record<string, string> => {
  const name = params.name ?? params.uri;
  return {
    'mcp-protocol-version': '2026-07-28',
    'mcp-method': method,
    ...(typeof name === 'string' ? { 'mcp-name': name } : {}),
    ...headers,
  };
};

/** Opens a legacy session and returns its headers. */
export async function openSession(
  port: number,
  version = '2025-11-25',
  options: Sending & { initialized?: boolean; capabilities?: unknown } = {},
): Promise<Record<string, string>> {
  const params = {
    protocolVersion: version,
    capabilities: options.capabilities ?? {},
    clientInfo: { name: 't', version: '1' },
  };
  const { initialized = true, capabilities: _, ...rest } = options;
  const reply = await send(port, { ...rest, body: rpc('init', 'initialize', params) });
  const id = reply.headers['mcp-session-id'];
  if (reply.status !== 200 || typeof id !== 'string') throw new Error(`no session: ${reply.status} ${reply.text}`);
  const headers = { 'mcp-session-id': id, 'mcp-protocol-version': version };
  if (initialized) await send(port, { ...rest, headers, body: notice('notifications/initialized') });
  return headers;
}

/** A response that is read while it arrives. */
export interface Listening {
  readonly status: number;
  readonly headers: Record<string, string | string[] | undefined>;
  text(): string;
  until(condition: (text: string) => boolean): Promise<string>;
  readonly ended: Promise<void>;
  hangUp(): void;
}

export function listen(port: number, sending: Sending): Promise<Listening> {
  const listening = new Promise<Listening>((resolve, reject) => {
    const request = httpRequest(
      {
        ...{ host: '127.0.0.1', port, method: sending.method ?? 'POST', path: sending.path ?? '/mcp', agent: false },
        headers: {
          ...(sending.body === undefined ? { accept: 'text/event-stream' } : usual),
          authorization: sending.key ?? key,
          ...sending.headers,
        },
      },
      (response) => {
        let text = '';
        let wake: Array<() => void> = [];
        let isOver = false;
        const changed = () => {
          const woken = wake;
          wake = [];
          for (const each of woken) each();
        };
        const ended = new Promise<void>((over) => {
          response.on('close', () => {
            isOver = true;
            over();
            changed();
          });
        });
        response.on('error', () => {});
        response.on('data', (chunk: Buffer) => {
          text += chunk.toString();
          changed();
        });
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          text: () => text,
          ended,
          hangUp: () => request.destroy(),
          until: async (condition) => {
            while (!condition(text)) {
              if (isOver) throw new Error(`the stream ended with: ${text}`);
              await new Promise<void>((woken) => wake.push(woken));
            }
            return text;
          },
        });
      },
    );
    request.on('error', reject);
    request.end(sending.body);
    toClose.push(() => request.destroy());
  });
  // Some tests close the stream before its response begins.
  listening.catch(() => {});
  return listening;
}

/** Sends raw bytes. Resolves with all received bytes when the connection ends. */
export function raw(port: number, bytes: string | Buffer, keepOpen = false): Promise<string> {
  return new Promise((resolve) => {
    const socket = rawSocket(port);
    let text = '';
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1');
      if (!keepOpen && text.includes('\r\n\r\n')) socket.end();
    });
    socket.on('close', () => resolve(text));
    socket.write(bytes);
  });
}

export function rawSocket(port: number): Socket {
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => {});
  toClose.push(() => socket.destroy());
  return socket;
}

export const statusOf = (text: string): number => Number(/^HTTP\/1\.1 (\d{3})/.exec(text)?.[1] ?? 0);

/** Data of the events in a stream, with their ids. */
export const eventsIn = (text: string): Array<{ id: string | undefined; data: string }> =>
  text
    .split('\n\n')
    .filter((block) => block.includes('data:'))
    .map((block) => ({ id: /^id: (.*)$/m.exec(block)?.[1], data: /^data: (.*)$/m.exec(block)?.[1] ?? '' }));
