/**
 * An HTTP server for tests that records requests and gives scripted answers.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface Received {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
  /** The JSON-RPC id and method of the body, if it has any. */
  readonly id: number | undefined;
  readonly rpcMethod: string | undefined;
}

export type Answer = (received: Received, response: ServerResponse, request: IncomingMessage) => void;

export interface TestServer {
  readonly url: string;
  readonly received: Received[];
  /** Resolves when `condition` holds. It is checked after each request and each closed response. */
  until(condition: () => boolean): Promise<void>;
  /** Number of responses that the client closed before their end. */
  readonly cut: number;
  close(): Promise<void>;
}

export async function startServer(answer: Answer): Promise<TestServer> {
  const received: Received[] = [];
  const state = { cut: 0 };
  let wake: Array<() => void> = [];
  const changed = () => {
    for (const resolve of wake.splice(0)) resolve();
  };
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    response.on('close', () => {
      if (!response.writableEnded) state.cut++;
      changed();
    });
    request.on('end', () => {
      const body = Buffer.concat(chunks).toString();
      const rpc = body === '' ? {} : (JSON.parse(body) as { id?: number; method?: string });
      const entry = { body, id: rpc.id, rpcMethod: rpc.method, headers: request.headers };
      const { method = '', url = '' } = request;
      received.push({ ...entry, method, path: url });
      answer({ ...entry, method, path: url }, response, request);
      changed();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`,
    received,
    get cut() {
      return state.cut;
    },
    async until(condition) {
      while (!condition()) await new Promise<void>((resolve) => wake.push(resolve));
    },
    close: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        wake = [];
        server.close(() => resolve());
      }),
  };
}

export const json = (response: ServerResponse, value: unknown, status = 200, headers: Record<string, string> = {}) =>
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(value));

export const result = (id: number | undefined, value: unknown = {}) => ({ jsonrpc: '2.0', id, result: value });

export const rpcError = (id: number | null | undefined, code: number) => ({
  jsonrpc: '2.0',
  id,
  error: { code, message: 'no' },
});

export const events = (response: ServerResponse) => response.writeHead(200, { 'content-type': 'text/event-stream' });
