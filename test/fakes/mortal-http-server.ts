/**
 * A legacy MCP server over HTTP with a fixed port. A test can crash and restart it, and can delay its answers.
 */
import type { ServerResponse } from 'node:http';
import { ClosablePort, type RpcMessage } from './closable-port.js';
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
  /** Methods of the received requests, in order. */
  readonly received: string[] = [];
  #held: (() => void)[] = [];
  readonly #port = new ClosablePort((message, response) => this.#answer(message, response));

  static async open(): Promise<MortalHttpServer> {
    const server = new MortalHttpServer();
    await server.listen();
    return server;
  }

  get url(): string {
    return this.#port.url;
  }

  count(method: string): number {
    return this.received.filter((each) => each === method).length;
  }

  listen(): Promise<void> {
    return this.#port.open();
  }

  /** Resets every connection and closes the port. */
  crash(): Promise<void> {
    this.#held = [];
    return this.#port.close();
  }

  answerHeld(): void {
    for (const answer of this.#held.splice(0)) answer();
  }

  #answer({ id, method }: RpcMessage, response: ServerResponse): void {
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
