/**
 * Legacy clients over streamable HTTP: POST sends messages, GET opens a stream, DELETE ends the session.
 * Not here: guards for all eras (http/http-ingress.ts), the session itself (http-session.ts).
 * Invariant: only a successful `initialize` adds a session to the table.
 */
import type { ServerResponse } from 'node:http';
import { ERRORS } from '../../../kernel/errors.js';
import { hasBatches, primesStreams } from '../../../session/eras/legacy/revisions.js';
import type { Envelope } from '../../../wire/envelope.js';
import { memberText } from '../../../wire/json-members.js';
import { NOTIFICATION, RPC } from '../../../wire/methods.js';
import type { ReceivedRequest } from '../../exchange.js';
import { type CurrentPrincipal, failureText, isFailure, type RpcFailure } from '../../exchange.js';
import type { Caller, IngressContext } from '../../http/ingress-context.js';
import { acceptsStream, failureOf, REFUSALS, type Refusal, sessionsFull, writeJson } from '../../http/reply.js';
import { SseStream } from '../../http/sse-stream.js';
import type { HttpEra } from '../era.js';
import { EventBudget, parseEventId } from './event-stream.js';
import { type Admit, LegacyHttpExchange, LegacyReply, LegacySession, retryMs, understood } from './http-session.js';
import { readInitialize } from './initialize.js';
import { SessionTable } from './session-table.js';

const initializeMethod = 'initialize';

export const createLegacyHttp = (context: IngressContext): LegacyHttp => new LegacyHttp(context);

export class LegacyHttp implements HttpEra {
  readonly #context: IngressContext;
  readonly #sessions: SessionTable;
  readonly #budget: EventBudget;

  constructor(context: IngressContext) {
    this.#context = context;
    this.#sessions = new SessionTable(context.clock, context.limits);
    this.#budget = new EventBudget(context.limits.eventBytes);
    this.#sessions.onEnded = (session) => {
      if (session.wasUsed && !session.isInitialized) context.router.endedBeforeOpen?.(session);
    };
  }

  get clients(): number {
    return this.#sessions.size;
  }

  get sessions(): number {
    return this.#sessions.size;
  }

  get storedEvents(): { readonly events: number; readonly bytes: number } {
    return { events: this.#budget.events, bytes: this.#budget.used };
  }

  keysChanged(now: CurrentPrincipal): void {
    this.#sessions.keysChanged(now);
  }

  endStreams(): void {
    this.#sessions.endStreams();
  }

  close(): void {
    this.#sessions.endAll();
  }

  post(caller: Caller, envelope: Envelope, response: ServerResponse): Refusal | undefined {
    const isInitialize = envelope.kind === 'request' && envelope.method() === initializeMethod;
    if (isInitialize && caller.headers['mcp-session-id'] === undefined)
      return this.#initialize(caller, envelope, response);
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
    const lastEventId = caller.headers['last-event-id'];
    if (!acceptsStream(caller.headers)) return REFUSALS.acceptStream;
    const { limits, beat, random } = this.#context;
    const open = () => new SseStream(response, limits, beat, [], () => session.touch());
    session.touch();
    if (lastEventId === undefined) {
      if (session.own.isRead) return REFUSALS.stream;
      const reader = open();
      if (primesStreams(session.version)) reader.write(session.own.primer(retryMs(random)));
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

  #sessionOf({ principal, endpoint, headers }: Caller): LegacySession | Refusal {
    const { 'mcp-session-id': id, 'mcp-protocol-version': version } = headers;
    if (id === undefined) return REFUSALS.sessionMissing;
    const session = this.#sessions.find(id, principal, endpoint);
    if (!session) return REFUSALS.sessionUnknown;
    if (version !== undefined && version !== session.version) return REFUSALS.version;
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
    const facts = { id: this.#context.newId(), principal, endpoint, ...read };
    const session = new LegacySession(facts, clock, limits, this.#budget);
    const reply = new LegacyReply(this.#context, response, session, 1, false);
    // A disconnected client never receives the session id.
    const admit: Admit = () =>
      !response.destroyed && this.#sessions.admit(session) ? ['Mcp-Session-Id', session.id] : sessionsFull;
    this.#context.router.handle(
      new LegacyHttpExchange(this.#context, reply, session, this.#requestOf(envelope), admit),
    );
    return undefined;
  }

  #requestOf(envelope: Envelope): ReceivedRequest {
    return {
      idText: envelope.idText() as string,
      method: envelope.method(),
      params: envelope.payload(),
      startedAtMs: this.#context.clock.nowMs(),
    };
  }

  #request(session: LegacySession, envelope: Envelope, reply: LegacyReply): void {
    const request = this.#requestOf(envelope);
    session.wasUsed = true;
    if (session.exchanges.has(request.idText)) return reply.answer(failureText(request.idText, idInUse), 400);
    const { limits, open } = this.#context;
    // Second check: a batch has many requests, and other requests may have started while its body was read.
    if (session.exchanges.size >= limits.exchangesPerSession || !open.admits(session.principal.id))
      return reply.answer(failureText(request.idText, full), 503);
    this.#context.router.handle(new LegacyHttpExchange(this.#context, reply, session, request));
  }

  #take(session: LegacySession, envelope: Envelope): void {
    if (envelope.kind !== 'notification') {
      // An answer without a waiting request is dropped: it came too late.
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
      if (id !== undefined) session.exchanges.get(id)?.cancel(cancelledByClient);
    }
  }
}

const idInUse: RpcFailure = {
  code: RPC.invalidRequest,
  message: 'a request with this id is open in this session; use another id',
};

const full = failureOf(REFUSALS.busy);

/**
 * A cancelled request still gets an answer: a POST needs a response body, and the client of a resumable stream reconnects until
 * it has received one.
 */
const cancelledByClient: RpcFailure = {
  code: ERRORS.cancelled.rpc,
  message: 'the client cancelled this request',
};
