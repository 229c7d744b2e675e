/**
 * An MCP server over HTTP of either era that requires a valid token. It records executed calls, and counts requests and refusals.
 */
import type { ServerResponse } from 'node:http';
import type { Era } from '../../src/wire/channel.js';
import { type Answer, json, type Received, result, rpcError, startServer, type TestServer } from './http-server.js';

export class GuardedServer {
  readonly good = new Set<string>();
  /** Nonces of executed calls, in order. */
  readonly executed: string[] = [];
  refused = 0;
  /** Replaces the handling of an admitted call. Returns true if it has handled the call. */
  onCall: (got: Received, response: ServerResponse, nonce: string) => boolean = () => false;
  /** Replaces the handling of any request, before the token is checked. */
  onRequest: (got: Received, response: ServerResponse) => boolean = () => false;
  readonly #era: Era;
  #http: TestServer | undefined;
  #session: string | undefined;
  #sessions = 0;

  constructor(era: Era, ...good: readonly string[]) {
    this.#era = era;
    for (const token of good) this.good.add(token);
  }

  async start(): Promise<this> {
    this.#http = await startServer(this.#answer);
    return this;
  }

  get http(): TestServer {
    if (!this.#http) throw new Error('not started');
    return this.#http;
  }

  get requests(): number {
    return this.http.received.length;
  }

  /** Sets the valid tokens. */
  accept(...tokens: readonly string[]): void {
    this.good.clear();
    for (const token of tokens) this.good.add(token);
  }

  /** Legacy: forgets all sessions. */
  forgetSession(): void {
    this.#session = undefined;
  }

  readonly #answer: Answer = (got, response) => {
    if (this.onRequest(got, response)) return;
    const token = /^Bearer (.*)$/.exec(got.headers.authorization ?? '')?.[1];
    if (token === undefined || !this.good.has(token)) {
      this.refused++;
      // Quotes the token in the challenge, as the worst servers do.
      const challenge = `Bearer error="invalid_token", error_description="bad: ${token}"`;
      json(response, rpcError(got.id, -32_001), 401, { 'www-authenticate': challenge });
      return;
    }
    if (this.#era === 'modern') this.#modern(got, response);
    else this.#legacy(got, response);
  };

  #modern(got: Received, response: ServerResponse): void {
    if (got.rpcMethod === 'server/discover') {
      json(response, result(got.id, { supportedVersions: ['2026-07-28'], capabilities: { tools: {} } }));
    } else this.#serve(got, response);
  }

  #legacy(got: Received, response: ServerResponse): void {
    if (got.method !== 'POST') response.writeHead(405).end();
    else if (got.rpcMethod === 'server/discover') response.writeHead(400).end();
    else if (got.rpcMethod === 'initialize') {
      this.#session = `session-${++this.#sessions}`;
      const facts = {
        protocolVersion: '2025-11-25',
        capabilities: { tools: {} },
        serverInfo: { name: 'g', version: '1' },
      };
      json(response, result(got.id, facts), 200, { 'mcp-session-id': this.#session });
    } else if (got.headers['mcp-session-id'] !== this.#session) response.writeHead(404).end();
    else this.#serve(got, response);
  }

  #serve(got: Received, response: ServerResponse): void {
    if (got.id === undefined) response.writeHead(202).end();
    else if (got.rpcMethod === 'tools/list') {
      const tools = ['write', 'admin'].map((name) => ({ name, inputSchema: { type: 'object' } }));
      json(response, result(got.id, { tools }));
    } else if (got.rpcMethod === 'tools/call') {
      const { params } = JSON.parse(got.body) as { params: { arguments?: { nonce?: string } } };
      const nonce = params.arguments?.nonce ?? '';
      if (this.onCall(got, response, nonce)) return;
      this.executed.push(nonce);
      json(response, result(got.id, { content: [{ type: 'text', text: nonce }] }));
    } else json(response, rpcError(got.id, -32_601));
  }
}
