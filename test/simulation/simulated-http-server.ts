/**
 * An MCP server over HTTP that exists only on a FakeClock. At random it forgets sessions, fails to open them, hangs, answers late,
 * resets connections, or is behind a proxy that answers 429, 502 or 503.
 */
import { randomInt } from '../../src/kernel/random.js';
import type { Era } from '../../src/wire/channel.js';
import { RequestCheck } from './request-check.js';
import { type McpFate, type McpMessage, type McpParts, type RequestQueue, SimulatedMcp } from './simulated-mcp.js';
import { type HttpReply, type HttpRequest, Port } from './simulated-network.js';

/** The outcome of a request and of its connection. */
export type HttpFate =
  | McpFate
  | 'hang'
  | 'late'
  | 'reset_before'
  | 'reset_during'
  | 'reset_after'
  | 'stream_ends'
  | 'http_429'
  | 'http_429_wait'
  | 'http_502'
  | 'http_503'
  | 'http_503_wait';

export const httpFaults: readonly HttpFate[] = [
  ...(['rejects', 'refuses', 'hang', 'late', 'reset_before', 'reset_during', 'reset_after', 'stream_ends'] as const),
  ...(['http_429', 'http_429_wait', 'http_502', 'http_503', 'http_503_wait'] as const),
];

/** How `initialize` ends. */
export type Opening = 'well' | 'rpc_error' | 'http_500' | 'http_429_wait' | 'http_503_wait' | 'hang' | 'slow';

export interface HttpTraits {
  /** Status for a request in an unknown session. */
  readonly forgottenStatus: 400 | 404;
  readonly answersAs: 'json' | 'events';
  /** Whether it keeps the event stream of a request open after the answer. */
  readonly lingers: boolean;
  /** Legacy: whether its event streams can be resumed. */
  readonly isResumable: boolean;
  /** Legacy: whether it has the standalone stream, or answers 405. */
  readonly hasServerStream: boolean;
}

/** The origin of a request. */
interface Sender {
  readonly session: string | undefined;
  readonly sentAtMs: number;
  readonly reply: HttpReply;
}

const json = { 'content-type': 'application/json' };
const events = { 'content-type': 'text/event-stream' };

export class SimulatedHttpServer {
  readonly kind = 'http';
  readonly mcp: SimulatedMcp;
  readonly #queue: RequestQueue;
  readonly port: Port;
  readonly #traits: HttpTraits;
  /** Share of requests that fail. */
  faultRate = 0;
  faults: readonly HttpFate[] = httpFaults;
  /** Outcomes of the next `initialize` requests. When empty, they succeed. */
  openings: Opening[] = [];
  /** Outcomes of the next lists. When empty, they are random. */
  lists: HttpFate[] = [];
  readonly check = new RequestCheck();
  /** Descriptions of requests that should not have been sent. */
  readonly wrong: string[] = [];
  /** Seconds of Retry-After. */
  retryAfterS = 1;
  readonly #sessions = new Set<string>();
  #sessionNumber = 0;
  /** Replies that never come or come late. */
  readonly #hung = new Set<HttpReply>();
  /** Answers whose stream ended too early, by the id of its last event. */
  readonly #unread = new Map<string, string>();
  initializes = 0;
  /** End of the last pause that it requested, except in answers to `initialize`. */
  pausedUntilMs = 0;

  constructor(parts: McpParts, traits: HttpTraits) {
    this.mcp = new SimulatedMcp(parts);
    this.#queue = this.mcp.openQueue();
    this.#traits = traits;
    this.port = new Port(
      (request, reply) => this.#handle(request, reply),
      (request) => this.#failed(request),
    );
  }

  /** As after a restart behind a proxy that keeps connections. */
  forgetSessions(): void {
    this.#sessions.clear();
  }

  /** Replaces it with another release: sessions are lost, and the era may change. */
  redeploy(era: Era): void {
    this.forgetSessions();
    this.mcp.era = era;
    this.mcp.release++;
  }

  mend(): void {
    this.port.open();
    this.faultRate = 0;
    this.openings = [];
    this.lists = [];
  }

  /** Number of clients that wait for a missing or late reply. */
  get hung(): number {
    for (const reply of this.#hung) if (!reply.isOpen) this.#hung.delete(reply);
    return this.#hung.size;
  }

  /** Calls are not held for a list that cannot be read. */
  #failed({ method, headers, body }: HttpRequest): void {
    if (method === 'POST' && (JSON.parse(body) as McpMessage).method === 'tools/list')
      this.check.listed(headers.get('mcp-session-id'));
  }

  #handle(request: HttpRequest, reply: HttpReply): void {
    if (request.method === 'POST') {
      const message = JSON.parse(request.body) as McpMessage;
      // A client that closes its session gives up what it waits for in the same instant.
      const isAwaited = () => reply.isOpen || reply.abortedAtMs === this.mcp.parts.clock.nowMs();
      return this.#queue.take(message, isAwaited, (free) => this.#post(message, request, reply, free));
    }
    const refusal = this.#refusal(request);
    if (refusal !== undefined) return this.#refuse(reply, refusal);
    if (request.method === 'DELETE') {
      this.#sessions.delete(request.headers.get('mcp-session-id') ?? '');
      return answer(reply, 200);
    }
    const lastEventId = request.headers.get('last-event-id');
    if (lastEventId !== undefined) this.#resume(lastEventId, reply);
    else if (this.#traits.hasServerStream) reply.head(200, events);
    else answer(reply, 405);
  }

  #post(message: McpMessage, request: HttpRequest, reply: HttpReply, free: () => void): void {
    const { era } = this.mcp;
    const { random } = this.mcp.parts;
    // The client has left. Half of the servers check that before they begin.
    if (!reply.isOpen && random() < 0.5) return free();
    const session = era === 'legacy' ? request.headers.get('mcp-session-id') : undefined;
    const wrong =
      this.#sessions.has(session ?? '') || era === 'modern'
        ? this.check.wrongOf(message.method, session, request.sentAtMs)
        : undefined;
    if (wrong !== undefined) this.wrong.push(`${this.mcp.parts.name}: ${wrong}`);
    if (message.method === 'initialize' && era === 'legacy') return this.#initialize(message, reply, free);
    // A request that asks for the era belongs to no session.
    const refusal =
      message.method === 'server/discover' || message.method === 'initialize' ? undefined : this.#refusal(request);
    if (refusal !== undefined) {
      free();
      return this.#refuse(reply, refusal);
    }
    if (message.id === undefined) {
      free();
      return answer(reply, 202);
    }
    this.#serve(message, { session, sentAtMs: request.sentAtMs, reply }, free);
  }

  #refusal({ headers }: HttpRequest): number | undefined {
    if (this.mcp.era === 'modern') return headers.get('mcp-protocol-version') === '2026-07-28' ? undefined : 400;
    const id = headers.get('mcp-session-id');
    if (id !== undefined && this.#sessions.has(id)) return undefined;
    return id === undefined ? 400 : this.#traits.forgottenStatus;
  }

  #refuse(reply: HttpReply, status: number): void {
    reply.head(status, json);
    reply.data('{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID"},"id":null}');
    reply.end();
  }

  #initialize(message: McpMessage, reply: HttpReply, free: () => void): void {
    const { timers, random, trace, name, clock } = this.mcp.parts;
    const opening = this.openings.shift() ?? 'well';
    this.initializes++;
    trace(`${name} initialize: ${opening}`);
    if (opening === 'hang') {
      this.#hung.add(reply);
      return free();
    }
    if (opening === 'slow') this.#hung.add(reply);
    timers.after(opening === 'slow' ? randomInt(random, 500, 25_000) : randomInt(random, 0, 20), () => {
      free();
      if (opening === 'http_500') return answer(reply, 500);
      if (opening === 'http_429_wait' || opening === 'http_503_wait') return this.#end(message, reply, opening);
      if (opening === 'rpc_error') {
        reply.head(200, json);
        reply.data(`{"jsonrpc":"2.0","id":${message.id},"error":{"code":-32603,"message":"not now"}}`);
        return reply.end();
      }
      const session = `session-${++this.#sessionNumber}`;
      this.#sessions.add(session);
      this.check.opened(session, clock.nowMs());
      this.#say(message, reply, 'answer', { 'mcp-session-id': session });
    });
  }

  #serve(message: McpMessage, from: Sender, free: () => void): void {
    const { session, sentAtMs, reply } = from;
    if (message.method === 'tools/list') this.check.listAsked(session, sentAtMs, reply);
    const { random, timers, isOneAtATime } = this.mcp.parts;
    const fate = (message.method === 'tools/list' ? this.lists.shift() : undefined) ?? this.#fate(message.method);
    // A proxy may have forwarded a request that it answers with 502 or 503, but not one that it throttles.
    const isPassedOn = !fate.startsWith('http_429') && (isRead(fate) || random() < 0.5);
    const end = () => {
      this.#noteEnd(message, from, fate);
      this.#end(message, reply, fate);
    };
    const call = message.method === 'tools/call' ? message.params?.arguments : undefined;
    if (fate === 'late') this.#hung.add(reply);
    // A server that handles one request at a time would be dead if it hung, so it is only late.
    const lateMs = fate === 'late' || (fate === 'hang' && isOneAtATime) ? randomInt(random, 5_000, 70_000) : 0;
    const after = () => {
      if (lateMs === 0) {
        free();
        return end();
      }
      timers.after(lateMs, () => {
        free();
        end();
      });
    };
    if (call && isPassedOn) this.mcp.work(call, fate !== 'refuses', () => true, after);
    else timers.after(randomInt(random, 0, 10), after);
  }

  #noteEnd({ method }: McpMessage, from: Sender, fate: HttpFate): void {
    const { session, reply } = from;
    const asksForFewer = fate.startsWith('http_429') || fate === 'http_503_wait';
    const isHeard = reply.isOpen && (method === 'tools/call' || method === 'tools/list');
    const askedMs = fate === 'http_429' ? 0 : this.retryAfterS * 1_000;
    if (asksForFewer && isHeard) this.check.throttled(method, from, this.mcp.parts.clock.nowMs(), askedMs);
    else if (method === 'tools/list' && fate !== 'hang') this.check.listed(session);
  }

  #end(message: McpMessage, reply: HttpReply, fate: HttpFate): void {
    const retryAfter = { 'retry-after': String(this.retryAfterS) };
    if (fate.endsWith('_wait') && message.method !== 'initialize')
      this.pausedUntilMs = Math.max(this.pausedUntilMs, this.mcp.parts.clock.nowMs() + this.retryAfterS * 1_000);
    switch (fate) {
      case 'hang':
        this.#hung.add(reply);
        return;
      case 'reset_before':
        return reply.reset();
      case 'stream_ends':
        reply.head(200, events);
        if (this.#traits.isResumable) reply.data(`id: ${this.#keep(this.mcp.answer(message, 'answer'))}\ndata:\n\n`);
        return reply.end();
      case 'http_429':
        return answer(reply, 429);
      case 'http_429_wait':
        return answer(reply, 429, retryAfter);
      case 'http_502':
        return answer(reply, 502);
      case 'http_503':
        return answer(reply, 503);
      case 'http_503_wait':
        return answer(reply, 503, retryAfter);
      default:
        return this.#say(message, reply, fate);
    }
  }

  #say(
    message: McpMessage,
    reply: HttpReply,
    fate: McpFate | 'late' | 'reset_during' | 'reset_after',
    headers: Readonly<Record<string, string>> = {},
  ): void {
    const { answersAs, lingers } = this.#traits;
    const text = this.mcp.answer(message, fate === 'rejects' || fate === 'refuses' ? fate : 'answer');
    const isStream = answersAs === 'events';
    reply.head(200, { ...(isStream ? events : json), ...headers });
    const body = isStream ? `event: message\ndata: ${text}\n\n` : text;
    if (fate === 'reset_during') {
      reply.data(body.slice(0, body.length / 2));
      return reply.reset();
    }
    reply.data(body);
    if (fate === 'reset_after') return reply.reset();
    if (isStream && lingers) this.mcp.parts.timers.after(2_000, () => reply.end());
    else reply.end();
  }

  /** Returns the id of the event that precedes the answer. */
  #keep(text: string): string {
    const id = `event-${this.#unread.size}`;
    this.#unread.set(id, text);
    return id;
  }

  #resume(lastEventId: string, reply: HttpReply): void {
    reply.head(200, events);
    const text = this.#unread.get(lastEventId);
    if (text !== undefined) reply.data(`data: ${text}\n\n`);
    reply.end();
  }

  #fate(method: string): HttpFate {
    const { random } = this.mcp.parts;
    if (random() >= this.faultRate) return 'answer';
    const fate = this.faults[randomInt(random, 0, this.faults.length - 1)] ?? 'answer';
    // A list that is refused as an invalid request is not requested again.
    return fate === 'refuses' && method !== 'tools/call' ? 'answer' : fate;
  }
}

const isRead = (fate: HttpFate): boolean => !fate.startsWith('http_') && fate !== 'hang' && fate !== 'reset_before';

function answer(reply: HttpReply, status: number, headers: Readonly<Record<string, string>> = {}): void {
  reply.head(status, headers);
  reply.end();
}
