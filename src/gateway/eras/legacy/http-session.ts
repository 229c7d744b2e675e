/**
 * One legacy session over HTTP, bound to one principal and endpoint, and its requests.
 * Not here: number and lifetime of sessions (session-table.ts), HTTP itself (http.ts).
 * Invariants: the end of a session ends its requests and streams. Two open requests never share an id. Notifications without a
 * request are sent on the GET stream; while the client is disconnected they are stored up to a limit.
 */

import type { ServerResponse } from 'node:http';
import type { Clock } from '../../../kernel/clock.js';
import { HostError } from '../../../kernel/errors.js';
import { type Random, randomInt } from '../../../kernel/random.js';
import type { Principal } from '../../../policy/operation.js';
import { primesStreams } from '../../../session/eras/legacy/revisions.js';
import type { JsonText } from '../../../wire/channel.js';
import { RPC } from '../../../wire/methods.js';
import type { Answer } from '../../../wire/peer-interface.js';
import {
  type AskLimits,
  type Client,
  type ClientCapabilities,
  type ClientSession,
  type CurrentPrincipal,
  type EndpointId,
  type Exchange,
  ExchangeBase,
  isFailure,
  notificationText,
  type ReceivedRequest,
  type RpcFailure,
} from '../../exchange.js';
import type { HttpLimits } from '../../http/http-limits.js';
import type { IngressContext } from '../../http/ingress-context.js';
import type { OpenExchange } from '../../http/open-exchanges.js';
import { type HeaderList, REFUSALS, sessionsFull, stopping, writeJson } from '../../http/reply.js';
import { SseStream } from '../../http/sse-stream.js';
import { ClientRequests } from './client-requests.js';
import { type EventBudget, type EventCount, EventStore, EventStream } from './event-stream.js';

/** Failure of the requests that are open when their session ends. */
const sessionEnded: RpcFailure = {
  code: RPC.invalidRequest,
  message: 'the session of this request was ended; open a new one with initialize',
};

/** Number of the stream that GET opens. */
const ownStreamNo = 0;

export class LegacySession implements ClientSession {
  readonly id: string;
  /** Principal of the last request. Its role may change during the session. */
  principal: Principal;
  readonly endpoint: EndpointId;
  readonly version: string;
  readonly capabilities: ClientCapabilities;
  readonly era = 'legacy';
  readonly asks: ClientRequests;
  /** Open requests by the JSON text of their id. */
  readonly exchanges = new Map<string, { cancel(failure: RpcFailure): void }>();
  readonly own: EventStream;
  isInitialized = false;
  wasUsed = false;
  /** Set by the session table; called at each use of the session. */
  onTouch: { touched(session: LegacySession): void } | undefined;
  readonly #clock: Clock;
  readonly #abort = new AbortController();
  readonly #store: EventStore;
  readonly #count: EventCount = { last: 0 };
  /** Streams of open requests. Undefined without streams, to save memory in idle sessions. */
  #streams: Map<number, EventStream> | undefined;
  #lastStreamNo = ownStreamNo;
  #usedAtMs: number;

  constructor(facts: Omit<Client, 'era'>, clock: Clock, limits: HttpLimits, budget: EventBudget) {
    this.id = facts.id;
    this.principal = facts.principal;
    this.endpoint = facts.endpoint;
    this.version = facts.version;
    this.capabilities = facts.capabilities;
    this.#clock = clock;
    this.#usedAtMs = clock.nowMs();
    this.#store = new EventStore(budget, limits.eventsPerSession, limits.eventBytesPerSession);
    this.asks = new ClientRequests(clock, limits.asksPerSession);
    this.own = new EventStream(ownStreamNo, this.#store, this.#count);
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  get isOver(): boolean {
    return this.#abort.signal.aborted;
  }

  /** Time of the last use; undefined while a request or the GET stream is open. */
  get idleSinceMs(): number | undefined {
    return this.exchanges.size > 0 || this.own.isRead ? undefined : this.#usedAtMs;
  }

  get usedAtMs(): number {
    return this.#usedAtMs;
  }

  /** Called when the client sends a message, and when a request or stream of the session ends. */
  touch(): void {
    this.#usedAtMs = this.#clock.nowMs();
    this.onTouch?.touched(this);
  }

  notify(method: string, params: JsonText | undefined): void {
    if (this.isOver) return;
    // Pending notifications without params are identical, so the stream merges them.
    if (params === undefined) this.own.announce(method);
    else this.own.send(notificationText(method, params));
  }

  newStream(): EventStream {
    const stream = new EventStream(++this.#lastStreamNo, this.#store, this.#count);
    this.#streams ??= new Map();
    this.#streams.set(stream.no, stream);
    return stream;
  }

  endStream(stream: EventStream): void {
    stream.end();
    if (this.#streams?.delete(stream.no) && this.#streams.size === 0) this.#streams = undefined;
  }

  /** `no`: the number in an event id. `finished`: the answer was written, and its events may still be stored. */
  streamAt(no: number): EventStream | 'finished' | undefined {
    if (no === ownStreamNo) return this.own;
    return this.#streams?.get(no) ?? (no <= this.#lastStreamNo ? 'finished' : undefined);
  }

  /** A stream that replays the stored events of a finished stream. */
  finishedStream(no: number): EventStream {
    return new EventStream(no, this.#store, this.#count);
  }

  end(): void {
    if (this.isOver) return;
    this.#abort.abort();
    this.asks.end();
    for (const exchange of [...this.exchanges.values()]) exchange.cancel(sessionEnded);
    this.own.end();
    for (const stream of this.#streams?.values() ?? []) stream.end();
    this.#streams = undefined;
    this.#store.clear();
  }
}

/** HTTP status of nearly all legacy answers. Legacy clients read a 404 as the end of their session. */
export const understood = 200;

/** Admits the session of a successful `initialize` and returns the header with its id. */
export type Admit = () => HeaderList | RpcFailure;

/**
 * One request of a legacy session over HTTP, and the response to its POST. The response is one JSON text, or an event stream if
 * a message precedes the answer. A batch always gets a stream. Requests to the client use the stream of their owner.
 * Invariant: only `notifications/cancelled`, or the end of session or gateway, cancels a request. A lost connection does not.
 */
export class LegacyHttpExchange extends ExchangeBase<LegacySession> implements OpenExchange {
  readonly isEndless = false;
  readonly ask: Exchange['ask'];
  readonly #context: IngressContext;
  readonly #reply: LegacyReply;
  readonly #admit: Admit | undefined;
  readonly #openId: number;
  #headers: HeaderList = [];

  /** `admit` is set only for `initialize`. */
  constructor(
    context: IngressContext,
    reply: LegacyReply,
    session: LegacySession,
    request: ReceivedRequest,
    admit?: Admit,
  ) {
    super(session, request);
    this.#context = context;
    this.#reply = reply;
    this.#admit = admit;
    // The client has no session before `initialize` is answered, so it could not answer a request.
    this.ask = admit ? undefined : (method, params, limits) => this.#ask(method, params, limits);
    session.exchanges.set(this.idText, this);
    this.#openId = context.open.add(this, session.principal.id);
  }

  /** False for `initialize`: the header with the session id is known only with the answer, so no stream can begin before it. */
  get isSilent(): boolean {
    return this.#admit === undefined && this.#reply.isSilent;
  }

  linger(): void {
    if (this.isOpen) this.#reply.linger();
  }

  override succeed(...parts: readonly JsonText[]): void {
    if (!this.isOpen) return;
    const admitted = this.#admit?.() ?? [];
    if (isFailure(admitted)) return this.fail(admitted);
    this.#headers = admitted;
    super.succeed(...parts);
  }

  shutDown(): void {
    this.cancel(stopping);
  }

  /** Matters only for `initialize`: the session table handles revoked keys of all open sessions. */
  keysChanged(now: CurrentPrincipal): void {
    if (!now(this.client.principal)) this.cancel(sessionEnded);
  }

  async #ask(method: string, params: JsonText | undefined, limits: AskLimits): Promise<Answer> {
    if (!this.isOpen) throw new HostError('cancelled', 'the request that caused the question has ended');
    return this.client.asks.ask(this, (parts) => this.#reply.send(parts), method, params, limits);
  }

  protected writeNotification(text: JsonText[]): void {
    if (!this.#admit) this.#reply.send(text);
  }

  protected write(answer: JsonText[] | undefined, failure: RpcFailure | undefined): void {
    this.client.exchanges.delete(this.idText);
    this.client.asks.withdraw(this);
    // The answer to `initialize` is not a use of the session, because the client may not have read it.
    if (!this.#admit) this.client.touch();
    this.#context.open.delete(this.#openId);
    const isFull = failure === sessionsFull;
    const status = isFull || failure === stopping ? failure.httpStatus : understood;
    const headers = isFull ? REFUSALS.sessionsFull.headers : this.#headers;
    if (answer) this.#reply.answer(answer, status ?? understood, headers);
  }
}

/** Reconnect delay of a client that lost its stream. It is random, so that not all clients reconnect at once. */
const retryMsMin = 1_000;
const retryMsMax = 3_000;

export const retryMs = (random: Random): number => randomInt(random, retryMsMin, retryMsMax);

export class LegacyReply {
  readonly #context: IngressContext;
  readonly #response: ServerResponse;
  readonly #session: LegacySession;
  #stream: EventStream | undefined;
  #pending: number;
  #isOver = false;

  constructor(
    context: IngressContext,
    response: ServerResponse,
    session: LegacySession,
    pending: number,
    isBatch: boolean,
  ) {
    this.#context = context;
    this.#response = response;
    this.#session = session;
    this.#pending = pending;
    if (isBatch) this.#open();
  }

  /** True while the connection is open and nothing was written. */
  get isSilent(): boolean {
    return !this.#isOver && this.#stream === undefined && !this.#response.destroyed;
  }

  linger(): void {
    if (this.isSilent) this.#open();
  }

  /** Sends a message before the answer. False: the connection is closed. */
  send(parts: readonly JsonText[]): boolean {
    if (this.#isOver) return false;
    const stream = this.#stream ?? this.#open();
    stream?.send(parts);
    return stream !== undefined;
  }

  /** Called once for each request of the POST; the last answer ends the response. */
  answer(parts: readonly JsonText[], status: number, headers: HeaderList = []): void {
    if (this.#isOver) return;
    this.#stream?.send(parts);
    if (--this.#pending > 0) return;
    this.#isOver = true;
    if (this.#stream) this.#session.endStream(this.#stream);
    else writeJson(this.#response, status, parts, this.#context.limits.writeStallMs, headers);
  }

  #open(): EventStream | undefined {
    if (this.#response.destroyed || this.#response.headersSent) return undefined;
    const { limits, beat, random } = this.#context;
    const stream = this.#session.newStream();
    const isPrimed = primesStreams(this.#session.version);
    this.#stream = stream;
    const reader = new SseStream(this.#response, limits, beat, []);
    if (isPrimed) reader.write(stream.primer(retryMs(random)));
    stream.attach(reader);
    // A revision without primers gets an SSE comment as the first bytes.
    if (!isPrimed) reader.beat();
    reader.flush();
    return stream;
  }
}
