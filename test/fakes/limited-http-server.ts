/**
 * A legacy MCP server over HTTP that can refuse calls with any status, and whose port can be closed and opened again. It records
 * received requests and executed calls.
 */
import type { ServerResponse } from 'node:http';
import { ClosablePort, type RpcMessage } from './closable-port.js';
import { json, result, rpcError } from './http-server.js';

const facts = {
  protocolVersion: '2025-11-25',
  capabilities: { tools: {}, resources: {}, prompts: {} },
  serverInfo: { name: 'limited', version: '1' },
};
const work = ['tools/call', 'tools/list', 'resources/read', 'prompts/get'];

export class LimitedHttpServer {
  /** Status with which calls are refused. Requests that only maintain the session are answered. */
  refusal: { readonly status: number; readonly retryAfter?: string } | undefined;
  /** Methods of the received requests, in order. */
  readonly received: string[] = [];
  /** Nonces of executed calls. */
  readonly executed: string[] = [];
  /** Calls wait for `answerHeld` before they are answered or refused. */
  holdsCalls = false;
  #held: (() => void)[] = [];
  readonly #port = new ClosablePort((message, response) => this.#answer(message, response));

  static async open(): Promise<LimitedHttpServer> {
    const server = new LimitedHttpServer();
    await server.openPort();
    return server;
  }

  get url(): string {
    return this.#port.url;
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

  openPort(): Promise<void> {
    return this.#port.open();
  }

  /** Ends every connection; new ones are refused. */
  closePort(): Promise<void> {
    return this.#port.close();
  }

  #answer({ id, method, params }: RpcMessage, response: ServerResponse): void {
    // Each request has a connection of its own, so that a closed port shows at once.
    response.shouldKeepAlive = false;
    if (method === undefined) return void response.writeHead(405).end();
    this.received.push(method);
    const serve = () => this.#serve(method, id, params?.arguments?.nonce, response);
    if (method === 'tools/call' && this.holdsCalls) this.#held.push(serve);
    else serve();
  }

  #serve(method: string, id: number | undefined, nonce: unknown, response: ServerResponse): void {
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
      this.executed.push(String(nonce ?? ''));
      json(response, result(id, { content: [] }));
    } else if (method === 'resources/read') json(response, result(id, { contents: [] }));
    else if (method === 'prompts/get') json(response, result(id, { messages: [] }));
    else json(response, rpcError(id, -32_601));
  }
}
