/**
 * What legacy clients send (2024-11-05 to 2025-11-25, streamable HTTP): messages by POST, a stream by GET, the end by DELETE.
 * Not here: checks that both eras share (http-ingress.ts), the session itself (http-session.ts).
 *
 * Invariant: a session is made only by an `initialize` that was answered with success, and nothing is kept of any other.
 */
import type { ServerResponse } from 'node:http';
import type { NewId } from '../../../kernel/random.js';
import { hasBatches } from '../../../session/eras/legacy/revisions.js';
import type { Envelope } from '../../../wire/envelope.js';
import { memberText } from '../../../wire/json-members.js';
import { NOTIFICATION, RPC } from '../../../wire/rpc-codes.js';
import { isFailure, type RpcFailure } from '../../exchange.js';
import { type IngressContext, route } from '../../http/ingress-context.js';
import { failureOf, REFUSALS, type Refusal } from '../../http/refusals.js';
import { writeJson } from '../../http/reply.js';
import { SseStream } from '../../http/sse-stream.js';
import { failureText } from '../../messages/rpc-text.js';
import { readInitialize } from '../modern/envelope.js';
import type { Caller } from '../modern/http.js';
import { EventBudget } from './event-store.js';
import { parseEventId } from './event-stream.js';
import { type Admit, LegacyExchange, understood } from './http-exchange.js';
import { isPrimed, LegacyReply, retryMs } from './http-reply.js';
import { LegacySession } from './http-session.js';
import type { SessionTable } from './session-table.js';

const initializeMethod = 'initialize';

export class LegacyHttp {
  readonly #context: IngressContext;
  readonly #sessions: SessionTable;
  readonly #newId: NewId;
  readonly #budget: EventBudget;

  constructor(context: IngressContext, sessions: SessionTable, newId: NewId) {
    this.#context = context;
    this.#sessions = sessions;
    this.#newId = newId;
    this.#budget = new EventBudget(context.limits.eventBytes);
    sessions.onEnded = (session) => {
      if (session.wasUsed && !session.isInitialized) context.router.neverOpened?.(session);
    };
  }

  /** Events that all sessions together keep for clients that reconnect. */
  get kept(): { readonly events: number; readonly bytes: number } {
    return { events: this.#budget.events, bytes: this.#budget.used };
  }

  post(caller: Caller, envelope: Envelope, response: ServerResponse): Refusal | undefined {
    const isInitialize = envelope.kind === 'request' && envelope.method() === initializeMethod;
    if (isInitialize && caller.head.sessionId === undefined) return this.#initialize(caller, envelope, response);
    const session = this.#sessionOf(caller);
    if ('status' in session) return session;
    if (isInitialize) return REFUSALS.sessionOpen;
    session.touch();
    if (envelope.kind !== 'request') {
      this.#take(session, envelope);
      response.writeHead(202);
      response.end();
      return undefined;
    }
    const reply = new LegacyReply(this.#context, response, session, 1, false);
    this.#request(session, envelope, reply);
    return undefined;
  }

  /** `messages` were scanned, each into an envelope of its own. */
  postBatch(caller: Caller, messages: readonly Envelope[], response: ServerResponse): Refusal | undefined {
    const session = this.#sessionOf(caller);
    if ('status' in session) return session;
    const requests = messages.filter(({ kind }) => kind === 'request');
    if (!hasBatches(session.version) || messages.length === 0) return REFUSALS.batch;
    if (requests.some((envelope) => envelope.method() === initializeMethod)) return REFUSALS.batch;
    session.touch();
    const reply = requests.length > 0 && new LegacyReply(this.#context, response, session, requests.length, true);
    for (const envelope of messages) {
      if (envelope.kind !== 'request') this.#take(session, envelope);
      else if (reply) this.#request(session, envelope, reply);
    }
    if (!reply) {
      response.writeHead(202);
      response.end();
    }
    return undefined;
  }

  get(caller: Caller, response: ServerResponse): Refusal | undefined {
    const session = this.#sessionOf(caller);
    if ('status' in session) return session;
    const { lastEventId } = caller.head;
    const { limits, beat, random } = this.#context;
    const open = () => new SseStream(response, limits, beat, [], () => session.touch());
    session.touch();
    if (lastEventId === undefined) {
      if (session.own.isRead) return REFUSALS.stream;
      const reader = open();
      if (isPrimed(session.version)) reader.write(session.own.primer(retryMs(random)));
      session.own.attach(reader);
      reader.flush();
      return undefined;
    }
    const at = parseEventId(lastEventId);
    const stream = at && session.streamAt(at.stream);
    if (!stream) return REFUSALS.lastEvent;
    const reader = open();
    const resumed = stream === 'finished' ? session.finishedStream(at.stream) : stream;
    resumed.attach(reader, at.seq);
    reader.flush();
    if (stream === 'finished') resumed.end();
    return undefined;
  }

  delete(caller: Caller, response: ServerResponse): Refusal | undefined {
    const session = this.#sessionOf(caller);
    if ('status' in session) return session;
    this.#sessions.end(session);
    response.writeHead(204);
    response.end();
    return undefined;
  }

  #sessionOf({ principal, endpoint, head }: Caller): LegacySession | Refusal {
    if (head.sessionId === undefined) return REFUSALS.sessionMissing;
    const session = this.#sessions.find(head.sessionId, principal, endpoint);
    if (!session) return REFUSALS.sessionUnknown;
    const { protocolVersion } = head;
    if (protocolVersion !== undefined && protocolVersion !== session.version) return REFUSALS.version;
    session.principal = principal;
    return session;
  }

  #initialize(caller: Caller, envelope: Envelope, response: ServerResponse): Refusal | undefined {
    const { clock, limits } = this.#context;
    const read = readInitialize(envelope.payload());
    if (isFailure(read)) {
      writeJson(response, understood, failureText(envelope.idText() as string, read), limits.writeStallMs);
      return undefined;
    }
    const { principal, endpoint } = caller;
    const facts = { id: this.#newId(), principal, endpoint, ...read };
    const session = new LegacySession(facts, clock, limits, this.#budget);
    const reply = new LegacyReply(this.#context, response, session, 1, false);
    // Whoever left meanwhile would never learn the id.
    const admit: Admit = () =>
      !response.destroyed && this.#sessions.admit(session) ? ['Mcp-Session-Id', session.id] : sessionsFull;
    route(this.#context, new LegacyExchange(this.#context, reply, session, this.#requestOf(envelope, admit)));
    return undefined;
  }

  #requestOf(envelope: Envelope, admit?: Admit) {
    return {
      idText: envelope.idText() as string,
      method: envelope.method(),
      params: envelope.payload(),
      startedAtMs: this.#context.clock.nowMs(),
      admit,
    };
  }

  #request(session: LegacySession, envelope: Envelope, reply: LegacyReply): void {
    const request = this.#requestOf(envelope);
    session.wasUsed = true;
    if (session.exchanges.has(request.idText)) return reply.answer(failureText(request.idText, idInUse), 400);
    const { limits, open } = this.#context;
    // Asked again: a batch has many requests, and others may have come while its body was on its way.
    if (session.exchanges.size >= limits.exchangesPerSession || !open.admits(session.principal.id))
      return reply.answer(failureText(request.idText, full), 503);
    route(this.#context, new LegacyExchange(this.#context, reply, session, request));
  }

  /** Notifications and answers. */
  #take(session: LegacySession, envelope: Envelope): void {
    if (envelope.kind !== 'notification') {
      // An answer that came too late is nobody's fault.
      session.asks.answered(envelope);
      return;
    }
    const method = envelope.method();
    const params = envelope.payload();
    if (method === NOTIFICATION.initialized) {
      if (session.isInitialized) return;
      session.isInitialized = true;
      session.asks.initialized();
      session.touch();
      this.#context.router.opened(session);
    } else if (method === NOTIFICATION.cancelled) {
      const id = params && memberText(params, 'requestId');
      if (id !== undefined) session.exchanges.get(id)?.cancel();
    } else this.#context.router.notified(session, method, params);
  }
}

const idInUse: RpcFailure = {
  code: RPC.invalidRequest,
  message: 'a request with this id is open in this session; use another id',
};

const full = failureOf(REFUSALS.busy);
const sessionsFull = failureOf(REFUSALS.sessionsFull);
