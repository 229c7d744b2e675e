/**
 * A legacy HTTP server that can forget its sessions and fail the next `initialize`. It records its requests, so that tests can
 * compare the reports of the host with what the server received.
 */
import type { ServerResponse } from 'node:http';
import { json, type Received, result, rpcError, startServer, type TestServer } from './http-server.js';

type InitializeMode = 'answer' | 'rpc_error' | 'status_500' | 'hang';

export class ForgetfulServer {
  http!: TestServer;
  initialize: InitializeMode = 'answer';
  /** The status for a request in a session that the server does not know. */
  unknownStatus = 404;
  /** As server-everything does: the refusal is a JSON-RPC error with the id of the request. */
  namesRequest = false;
  /** `tools/call` waits here until the test answers it. */
  isHolding = false;
  /** `initialize` waits here until the test answers it. */
  isHoldingInitialize = false;
  readonly held: (() => void)[] = [];
  /** Subjects of `tools/call` that ran, by their `nonce`. */
  readonly executed: string[] = [];
  initializes = 0;
  initializesInFlight = 0;
  /** The largest number of `initialize` requests that were in flight at the same time. */
  initializesInFlightMax = 0;
  withoutSession = 0;
  /** Calls that were refused for their session. */
  refused = 0;
  hasStream = true;
  /** The standalone stream ends after its first event, with a `retry` of one millisecond. */
  endsStreams = false;
  streamsOpened = 0;
  pings = 0;
  readonly subscribed: string[] = [];
  #sessions = new Set<string>();
  #streams = new Map<string, ServerResponse>();
  #nextSession = 1;

  async start(): Promise<this> {
    this.http = await startServer((received, response) => this.#answer(received, response));
    return this;
  }

  forgetSessions(): void {
    this.#sessions.clear();
    for (const stream of this.#streams.values()) stream.end();
    this.#streams.clear();
  }

  releaseHeld(): void {
    for (const answer of this.held.splice(0)) answer();
  }

  /** Sends a notification on every open standalone stream. */
  announce(method: string, params: object): void {
    for (const stream of this.#streams.values())
      stream.write(`data: ${JSON.stringify({ jsonrpc: '2.0', method, params })}\n\n`);
  }

  get openStreams(): number {
    return this.#streams.size;
  }

  #answer(received: Received, response: ServerResponse): void {
    const { method, rpcMethod, id } = received;
    const session = received.headers['mcp-session-id'] as string | undefined;
    if (method === 'DELETE') return void response.writeHead(200).end();
    if (rpcMethod === 'server/discover') return void json(response, rpcError(id, -32601), 400);
    if (rpcMethod === 'initialize') return this.#initialize(id, response);
    if (session === undefined) this.withoutSession++;
    if (rpcMethod === 'ping') this.pings++;
    if (session === undefined || !this.#sessions.has(session)) {
      if (rpcMethod === 'tools/call') this.refused++;
      return this.#refuse(id, response);
    }
    if (method === 'GET' && !this.hasStream) return void response.writeHead(404).end();
    if (method === 'GET') return this.#stream(session, response);
    if (id === undefined) return void response.writeHead(202).end();
    if (rpcMethod === 'tools/call') return this.#call(received, response);
    if (rpcMethod === 'resources/subscribe') {
      this.subscribed.push(`${session} ${(JSON.parse(received.body) as { params: { uri: string } }).params.uri}`);
    }
    json(response, result(id, rpcMethod === 'tools/list' ? { tools: [tool] } : {}));
  }

  #initialize(id: number | undefined, response: ServerResponse): void {
    this.initializes++;
    this.initializesInFlight++;
    this.initializesInFlightMax = Math.max(this.initializesInFlightMax, this.initializesInFlight);
    response.once('close', () => this.initializesInFlight--);
    if (this.initialize === 'hang') return;
    if (this.isHoldingInitialize) this.held.push(() => this.#open(id, response));
    else this.#open(id, response);
  }

  #open(id: number | undefined, response: ServerResponse): void {
    if (this.initialize === 'rpc_error') return void json(response, rpcError(id, -32603));
    if (this.initialize === 'status_500') return void response.writeHead(500).end();
    const session = `s${this.#nextSession++}`;
    this.#sessions.add(session);
    const facts = {
      protocolVersion: '2025-11-25',
      capabilities: { tools: {}, resources: { subscribe: true } },
      serverInfo: { name: 'forgetful', version: '1' },
    };
    json(response, result(id, facts), 200, { 'mcp-session-id': session });
  }

  #refuse(id: number | undefined, response: ServerResponse): void {
    const body = rpcError(this.namesRequest ? id : null, -32000);
    json(response, body, this.unknownStatus);
  }

  #stream(session: string, response: ServerResponse): void {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    this.streamsOpened++;
    const log = { jsonrpc: '2.0', method: 'notifications/message', params: { level: 'info', data: 'x' } };
    if (this.endsStreams) return void response.end(`retry: 1\ndata: ${JSON.stringify(log)}\n\n`);
    response.write('retry: 10\ndata: \n\n');
    this.#streams.set(session, response);
    response.once('close', () => {
      if (this.#streams.get(session) === response) this.#streams.delete(session);
    });
  }

  #call({ id, body }: Received, response: ServerResponse): void {
    const { params } = JSON.parse(body) as { params: { arguments?: { nonce?: string; refuse?: boolean } } };
    // A refusal that is not about the session.
    if (params.arguments?.refuse) return void json(response, rpcError(this.namesRequest ? id : null, -32602), 400);
    this.executed.push(params.arguments?.nonce ?? '');
    const answer = () => void json(response, result(id, { content: [] }));
    if (this.isHolding) this.held.push(answer);
    else answer();
  }
}

const tool = { name: 'write', inputSchema: { type: 'object' } };
