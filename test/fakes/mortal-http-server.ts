/**
 * A legacy MCP server over HTTP with a fixed port, which a test can crash and bring back, and which answers calls when told.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { json, result, rpcError } from './http-server.js';

const facts = {
  protocolVersion: '2025-11-25',
  capabilities: { tools: {}, resources: {} },
  serverInfo: { name: 'mortal', version: '1' },
};
const tools = [{ name: 'write', inputSchema: { type: 'object' } }];

export class MortalHttpServer {
  /** Answers `tools/call` and `resources/read` at once; false: holds them until `answerHeld`. */
  answersCalls = true;
  answersPings = true;
  /** Answers everything with this status, as a proxy without a server behind it does. */
  proxyStatus: number | undefined;
  /** Methods of the requests that came in, in order. */
  readonly received: string[] = [];
  #held: (() => void)[] = [];
  #server: Server | undefined;
  #port = 0;

  static async open(): Promise<MortalHttpServer> {
    const server = new MortalHttpServer();
    await server.listen();
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}/mcp`;
  }

  count(method: string): number {
    return this.received.filter((each) => each === method).length;
  }

  async listen(): Promise<void> {
    const server = createServer((request, response) => this.#read(request, response));
    await new Promise<void>((resolve) => server.listen(this.#port, '127.0.0.1', resolve));
    this.#port = (server.address() as AddressInfo).port;
    server.on('connection', (socket: Socket) => socket.on('error', () => {}));
    this.#server = server;
  }

  /** Resets every connection and closes the port. */
  async crash(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    this.#held = [];
    if (!server) return;
    await new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  }

  answerHeld(): void {
    for (const answer of this.#held.splice(0)) answer();
  }

  #read(request: IncomingMessage, response: ServerResponse): void {
    const chunks: Buffer[] = [];
    request.on('error', () => {});
    response.on('error', () => {});
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const body = Buffer.concat(chunks).toString();
      const { id, method } = (body === '' ? {} : JSON.parse(body)) as { id?: number; method?: string };
      this.#answer(id, method, response);
    });
  }

  #answer(id: number | undefined, method: string | undefined, response: ServerResponse): void {
    if (method !== undefined) this.received.push(method);
    if (this.proxyStatus !== undefined) response.writeHead(this.proxyStatus).end('no upstream');
    else if (id === undefined) response.writeHead(method === undefined ? 405 : 202).end();
    else if (method === 'initialize') json(response, result(id, facts));
    else if (method === 'tools/list') json(response, result(id, { tools }));
    else if (method === 'ping') {
      if (this.answersPings) json(response, result(id));
    } else if (method === 'tools/call') this.#work(() => json(response, result(id, { content: [] })));
    else if (method === 'resources/read') this.#work(() => json(response, result(id, { contents: [] })));
    else json(response, rpcError(id, -32601));
  }

  #work(answer: () => void): void {
    if (this.answersCalls) answer();
    else this.#held.push(answer);
  }
}
