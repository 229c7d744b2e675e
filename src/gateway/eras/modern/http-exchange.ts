/**
 * One request of a modern client: answered as one JSON text, or, once anything is told before the answer or it takes long, as a
 * stream of events that ends with it.
 * Invariants: ended once; a client that closes its response has cancelled; after either, nothing is written.
 */

import type { ServerResponse } from 'node:http';
import { Cancellation, type CancelSignal } from '../../../kernel/cancel-signal.js';
import type { JsonText } from '../../../wire/frame.js';
import { listenMethod } from '../../../wire/rpc-codes.js';
import type { Client, Exchange, PrincipalNow, RpcFailure } from '../../exchange.js';
import type { IngressContext } from '../../http/ingress-context.js';
import type { OpenExchange } from '../../http/open-exchanges.js';
import { failureOf, keyRevoked, REFUSALS } from '../../http/refusals.js';
import { writeJson } from '../../http/reply.js';
import { eventText, SseStream } from '../../http/sse-stream.js';
import { failureText, notificationText, resultText } from '../../messages/rpc-text.js';
import { statusOf } from './failure-status.js';

export class ModernExchange implements Exchange, OpenExchange {
  client: Client;
  readonly idText: string;
  readonly method: string;
  readonly params: Buffer | undefined;
  readonly startedAtMs: number;
  readonly ask = undefined;
  readonly #response: ServerResponse;
  readonly #context: IngressContext;
  #stream: SseStream | undefined;
  #abort: Cancellation | undefined;
  #state: 'open' | 'answered' | 'gone' = 'open';

  constructor(
    context: IngressContext,
    response: ServerResponse,
    client: Client,
    idText: string,
    method: string,
    params: Buffer | undefined,
    startedAtMs: number,
  ) {
    this.#context = context;
    this.#response = response;
    this.client = client;
    this.idText = idText;
    this.method = method;
    this.params = params;
    this.startedAtMs = startedAtMs;
    context.open.add(this, client.principal.id);
    response.on('close', () => this.#gone());
  }

  get isEndless(): boolean {
    return this.method === listenMethod;
  }

  get signal(): CancelSignal {
    this.#abort ??= new Cancellation();
    if (this.#state === 'gone') this.#abort.abort();
    return this.#abort;
  }

  get isSilent(): boolean {
    return this.#stream === undefined;
  }

  linger(): void {
    if (this.#state === 'open') this.#opened().beat();
  }

  notify(method: string, params: JsonText): void {
    if (this.#state === 'open') this.#opened().write(eventText(undefined, notificationText(method, params)));
  }

  #opened(): SseStream {
    this.#stream ??= new SseStream(this.#response, this.#context.limits, this.#context.beat, []);
    return this.#stream;
  }

  succeed(...parts: readonly JsonText[]): void {
    this.#answer(200, resultText(this.idText, parts));
  }

  fail(failure: RpcFailure): void {
    this.#answer(statusOf(failure), failureText(this.idText, failure));
  }

  shutDown(): void {
    this.#endWith(failureOf(REFUSALS.stopping));
  }

  rekeyed(now: PrincipalNow): void {
    const principal = now(this.client.principal);
    if (!principal) this.#endWith(keyRevoked);
    else if (principal !== this.client.principal) this.client = { ...this.client, principal };
  }

  /** Whoever answers may still do so when its signal aborts. */
  #endWith(failure: RpcFailure): void {
    this.#abort?.abort();
    if (this.#state !== 'open') return;
    if (this.isEndless && this.#stream) {
      this.#settle('gone');
      this.#stream.end();
    } else {
      this.fail(failure);
      this.#state = 'gone';
    }
  }

  #answer(status: number, parts: JsonText[]): void {
    if (this.#state !== 'open') return;
    this.#settle('answered');
    if (this.#stream) {
      this.#stream.write(eventText(undefined, parts));
      this.#stream.end();
    } else writeJson(this.#response, status, parts, this.#context.limits.writeStallMs);
  }

  #gone(): void {
    if (this.#state !== 'open') return;
    this.#settle('gone');
    this.#abort?.abort();
  }

  #settle(state: 'answered' | 'gone'): void {
    this.#state = state;
    this.#context.open.delete(this);
  }
}
