/**
 * A legacy MCP server over HTTP that refuses work with a status of the test's choice, and whose port can close and open again.
 * It keeps the truth: which requests reached it, and which calls it executed.
 */
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json, result, rpcError } from './http-server.js';

const facts = {
  protocolVersion: '2025-11-25',
  capabilities: { tools: {}, resources: {}, prompts: {} },
  serverInfo: { name: 'limited', version: '1' },
};
const work = ['tools/call', 'tools/list', 'resources/read', 'prompts/get'];

export class LimitedHttpServer {
  /** What work is refused with; requests that keep the session are answered all the same. */
  refusal: { readonly status: number; readonly retryAfter?: string } | undefined;
  /** Methods of the requests that came in, in order. */
  readonly received: string[] = [];
  /** Nonces of the calls that ran. */
  readonly executed: string[] = [];
  /** Calls wait for `answerHeld` before they are answered or refused. */
  holdsCalls = false;
  #held: (() => void)[] = [];
  #http: Server | undefined;
  #port = 0;

  static async open(): Promise<LimitedHttpServer> {
    const server = new LimitedHttpServer();
    await server.openPort();
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}/mcp`;
  }

  get held(): number {
    return this.#held.length;
  }

  count(method: string): number {
    return this.received.filter((each) => each === method).length;
  }

  answerHeld(): void {
    for (const answer of this.#held.splice(0)) answer();
  }

  async openPort(): Promise<void> {
    const http = createServer((request, response) => {
      const chunks: Buffer[] = [];
      // Each request has a connection of its own, so that a closed port shows at once.
      response.shouldKeepAlive = false;
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => this.#answer(Buffer.concat(chunks).toString(), response));
    });
    await new Promise<void>((resolve) => http.listen(this.#port, '127.0.0.1', resolve));
    this.#port = (http.address() as AddressInfo).port;
    this.#http = http;
  }

  /** Ends every connection; new ones are refused. */
  async closePort(): Promise<void> {
    const http = this.#http;
    this.#http = undefined;
    if (!http) return;
    await new Promise<void>((resolve) => {
      http.close(() => resolve());
      http.closeAllConnections();
    });
  }

  #answer(body: string, response: ServerResponse): void {
    const { id, method, params } = (body === '' ? {} : JSON.parse(body)) as {
      id?: number;
      method?: string;
      params?: { arguments?: { nonce?: string } };
    };
    if (method === undefined) return void response.writeHead(405).end();
    this.received.push(method);
    if (method !== 'tools/call' || !this.holdsCalls) return this.#serve(method, id, params?.arguments?.nonce, response);
    this.#held.push(() => this.#serve(method, id, params?.arguments?.nonce, response));
  }

  #serve(method: string, id: number | undefined, nonce: string | undefined, response: ServerResponse): void {
    const { refusal } = this;
    if (refusal && work.includes(method)) {
      const headers = refusal.retryAfter === undefined ? {} : { 'retry-after': refusal.retryAfter };
      response.writeHead(refusal.status, headers).end();
    } else if (id === undefined) response.writeHead(202).end();
    else if (method === 'initialize') json(response, result(id, facts));
    else if (method === 'ping') json(response, result(id));
    else if (method === 'tools/list')
      json(response, result(id, { tools: [{ name: 'write', inputSchema: { type: 'object' } }] }));
    else if (method === 'tools/call') {
      this.executed.push(nonce ?? '');
      json(response, result(id, { content: [] }));
    } else if (method === 'resources/read') json(response, result(id, { contents: [] }));
    else if (method === 'prompts/get') json(response, result(id, { messages: [] }));
    else json(response, rpcError(id, -32_601));
  }
}
