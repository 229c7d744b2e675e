/**
 * One request of a legacy session over HTTP, and the response to its POST. The response is one JSON text, or an event stream if
 * a message precedes the answer. A batch always gets a stream. Requests to the client use the stream of their owner.
 * Invariant: only `notifications/cancelled`, or the end of session or gateway, cancels a request. A lost connection does not.
 */

import type { ServerResponse } from 'node:http';
import { HostError } from '../../../kernel/errors.js';
import { type Random, randomInt } from '../../../kernel/random.js';
import { primesStreams } from '../../../session/eras/legacy/revisions.js';
import type { JsonText } from '../../../wire/channel.js';
import type { Answer } from '../../../wire/peer-interface.js';
import {
  type AskLimits,
  type CurrentPrincipal,
  type Exchange,
  ExchangeBase,
  isFailure,
  type ReceivedRequest,
  type RpcFailure,
} from '../../exchange.js';
import type { IngressContext } from '../../http/ingress-context.js';
import type { OpenExchange } from '../../http/open-exchanges.js';
import { type HeaderList, REFUSALS, sessionsFull, stopping } from '../../http/refusals.js';
import { writeJson } from '../../http/reply.js';
import { SseStream } from '../../http/sse-stream.js';
import type { EventStream } from './event-stream.js';
import { type LegacySession, sessionEnded } from './http-session.js';

/** HTTP status of nearly all legacy answers. Legacy clients read a 404 as the end of their session. */
export const understood = 200;

/** Admits the session of a successful `initialize` and returns the header with its id. */
export type Admit = () => HeaderList | RpcFailure;

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

  /** False for `initialize`: its session header is known only at its end, so it cannot become a stream. */
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
