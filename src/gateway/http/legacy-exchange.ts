/**
 * One request of a legacy session. Its client may be asked things, on the stream of this request.
 * Invariants: ended once; cancelled only by `notifications/cancelled` or the end of its session, never by a lost connection.
 */
import { Cancellation, type CancelSignal } from '../../kernel/cancel-signal.js';
import { HostError } from '../../kernel/errors.js';
import type { JsonText } from '../../wire/frame.js';
import type { Answer } from '../../wire/peer.js';
import type { AskLimits, Exchange, PrincipalNow, RpcFailure } from '../exchange.js';
import type { ExchangeDesk } from './exchange-desk.js';
import type { LegacyReply } from './legacy-reply.js';
import type { LegacySession } from './legacy-session.js';
import type { OpenExchange } from './open-exchanges.js';
import type { HeaderList } from './reply.js';
import { failureText, notificationText, resultText } from './rpc-text.js';
import { stopping } from './stopping.js';

/** Where a legacy request fails, HTTP has nothing to say. */
const understood = 200;

/** Says whether a successful `initialize` may open its session; the headers that name it, or why not. */
export type Admit = () => HeaderList | RpcFailure;

export interface LegacyRequest {
  readonly idText: string;
  readonly method: string;
  readonly params: Buffer | undefined;
  readonly startedAtMs: number;
  /** Of `initialize` alone. */
  readonly admit: Admit | undefined;
}

export class LegacyExchange implements Exchange, OpenExchange {
  readonly client: LegacySession;
  readonly idText: string;
  readonly method: string;
  readonly params: Buffer | undefined;
  readonly startedAtMs: number;
  readonly isEndless = false;
  readonly ask: Exchange['ask'];
  readonly #desk: ExchangeDesk;
  readonly #reply: LegacyReply;
  readonly #admit: Admit | undefined;
  #abort: Cancellation | undefined;
  #isOpen = true;
  #isCancelled = false;

  constructor(desk: ExchangeDesk, reply: LegacyReply, session: LegacySession, request: LegacyRequest) {
    this.#desk = desk;
    this.#reply = reply;
    this.#admit = request.admit;
    this.client = session;
    this.idText = request.idText;
    this.method = request.method;
    this.params = request.params;
    this.startedAtMs = request.startedAtMs;
    // Before there is a session, there is nowhere to answer to.
    this.ask = request.admit ? undefined : (method, params, limits) => this.#ask(method, params, limits);
    session.exchanges.set(this.idText, this);
    desk.open.add(this);
  }

  get signal(): CancelSignal {
    this.#abort ??= new Cancellation();
    if (this.#isCancelled) this.#abort.abort();
    return this.#abort;
  }

  /** `initialize` is answered with a header that is only known at its end: it waits. */
  get isSilent(): boolean {
    return this.#admit === undefined && this.#reply.isSilent;
  }

  linger(): void {
    if (this.#isOpen) this.#reply.linger();
  }

  notify(method: string, params: JsonText): void {
    if (this.#isOpen && !this.#admit) this.#reply.tell(notificationText(method, params));
  }

  succeed(...parts: readonly JsonText[]): void {
    if (!this.#isOpen) return;
    const admitted = this.#admit?.() ?? [];
    if ('code' in admitted) return this.#end(failureText(this.idText, admitted), admitted.httpStatus ?? understood);
    this.#end(resultText(this.idText, parts), understood, admitted);
  }

  fail(failure: RpcFailure): void {
    if (this.#isOpen) this.#end(failureText(this.idText, failure), understood);
  }

  /** By the client, who expects no answer. */
  cancel(): void {
    if (!this.#isOpen) return;
    this.#end(undefined, understood);
    this.#withdraw();
  }

  sessionEnded(): void {
    if (!this.#isOpen) return;
    this.#end(failureText(this.idText, sessionOver), understood);
    this.#withdraw();
  }

  shutDown(): void {
    if (!this.#isOpen) return;
    this.#end(failureText(this.idText, stopping), stopping.httpStatus ?? understood);
    this.#withdraw();
  }

  /** The session has its own say; before there is one, this is all there is to end. */
  rekeyed(now: PrincipalNow): void {
    if (!now(this.client.principal)) this.sessionEnded();
  }

  async #ask(method: string, params: JsonText | undefined, limits: AskLimits): Promise<Answer> {
    if (!this.#isOpen) throw new HostError('cancelled', 'the request that asks the client is over');
    return this.client.asks.ask((parts) => this.#reply.tell(parts), method, params, limits, this.signal);
  }

  #withdraw(): void {
    this.#isCancelled = true;
    this.#abort?.abort();
  }

  #end(parts: JsonText[] | undefined, status: number, headers: HeaderList = []): void {
    this.#isOpen = false;
    this.client.exchanges.delete(this.idText);
    this.client.touch();
    this.#desk.open.delete(this);
    this.#reply.answer(parts, status, headers);
  }
}

const sessionOver: RpcFailure = {
  code: -32600,
  message: 'the session of this request was ended; open a new one with initialize',
};
