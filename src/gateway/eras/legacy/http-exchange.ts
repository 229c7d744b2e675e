/**
 * One request of a legacy session. Its client may be asked things, on the stream of this request.
 * Invariants: ended once; cancelled only by `notifications/cancelled` or the end of its session, never by a lost connection.
 */
import { Cancellation, type CancelSignal } from '../../../kernel/cancel-signal.js';
import { ERRORS, HostError } from '../../../kernel/errors.js';
import type { JsonText } from '../../../wire/frame.js';
import type { Answer } from '../../../wire/peer-interface.js';
import { RPC } from '../../../wire/rpc-codes.js';
import { type AskLimits, type Exchange, isFailure, type PrincipalNow, type RpcFailure } from '../../exchange.js';
import type { IngressContext } from '../../http/ingress-context.js';
import type { OpenExchange } from '../../http/open-exchanges.js';
import { REFUSALS } from '../../http/refusals.js';
import type { HeaderList } from '../../http/reply.js';
import { failureText, notificationText, resultText } from '../../messages/rpc-text.js';
import type { LegacyReply } from './http-reply.js';
import type { LegacySession } from './http-session.js';

/** Where a legacy request fails, HTTP has nothing to say. */
export const understood = 200;

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
  readonly #context: IngressContext;
  readonly #reply: LegacyReply;
  readonly #admit: Admit | undefined;
  #abort: Cancellation | undefined;
  #isOpen = true;
  #isCancelled = false;

  constructor(context: IngressContext, reply: LegacyReply, session: LegacySession, request: LegacyRequest) {
    this.#context = context;
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
    context.open.add(this, session.principal.id);
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
    if (isFailure(admitted)) {
      const { status, headers } = REFUSALS.sessionsFull;
      return this.#end(failureText(this.idText, admitted), status, headers);
    }
    this.#end(resultText(this.idText, parts), understood, admitted);
  }

  fail(failure: RpcFailure): void {
    if (this.#isOpen) this.#end(failureText(this.idText, failure), understood);
  }

  /**
   * By the client. A POSTed request must be answered with JSON or an event stream all the same, and a client that reads a
   * resumable stream reconnects until it has seen a response; so the response is an error, which the client may ignore.
   */
  cancel(): void {
    if (!this.#isOpen) return;
    this.#end(failureText(this.idText, cancelledByClient), understood);
    this.#withdraw();
  }

  sessionEnded(): void {
    if (!this.#isOpen) return;
    this.#end(failureText(this.idText, sessionOver), understood);
    this.#withdraw();
  }

  shutDown(): void {
    if (!this.#isOpen) return;
    const { status, failure } = REFUSALS.stopping;
    this.#end(failureText(this.idText, failure), status);
    this.#withdraw();
  }

  /** The session has its own say; before there is one, this is all there is to end. */
  rekeyed(now: PrincipalNow): void {
    if (!now(this.client.principal)) this.sessionEnded();
  }

  async #ask(method: string, params: JsonText | undefined, limits: AskLimits): Promise<Answer> {
    if (!this.#isOpen) throw new HostError('cancelled', 'the request that asks the client is over');
    return this.client.asks.ask(this, (parts) => this.#reply.tell(parts), method, params, limits);
  }

  #withdraw(): void {
    this.#isCancelled = true;
    this.#abort?.abort();
  }

  #end(parts: JsonText[], status: number, headers: HeaderList = []): void {
    this.#isOpen = false;
    this.client.exchanges.delete(this.idText);
    this.client.asks.withdraw(this);
    // The answer to `initialize` does not count as use: the client has not yet shown that it read the answer.
    if (!this.#admit) this.client.touch();
    this.#context.open.delete(this);
    this.#reply.answer(parts, status, headers);
  }
}

const cancelledByClient: RpcFailure = {
  code: ERRORS.cancelled.rpc,
  message: 'the client cancelled this request',
};

const sessionOver: RpcFailure = {
  code: RPC.invalidRequest,
  message: 'the session of this request was ended; open a new one with initialize',
};
