/**
 * One request of a modern client: answered as one JSON text, or, once anything is told before the answer or it takes long, as a
 * stream of events that ends with it.
 * Invariants: ended once; a client that closes its response has cancelled; after either, nothing is written.
 */

import type { ServerResponse } from 'node:http';
import { Cancellation, type CancelSignal } from '../../kernel/cancel-signal.js';
import type { JsonText } from '../../wire/frame.js';
import { listenMethod } from '../../wire/rpc-codes.js';
import type { Client, Exchange, PrincipalNow, RpcFailure } from '../exchange.js';
import { failureText, notificationText, resultText } from '../messages/rpc-text.js';
import type { ExchangeDesk } from './exchange-desk.js';
import { statusOf } from './failure-status.js';
import type { OpenExchange } from './open-exchanges.js';
import { failureOf, keyless, REFUSALS } from './refusals.js';
import { writeJson } from './reply.js';
import { eventText, SseStream } from './sse-stream.js';

export class ModernExchange implements Exchange, OpenExchange {
  client: Client;
  readonly idText: string;
  readonly method: string;
  readonly params: Buffer | undefined;
  readonly startedAtMs: number;
  readonly ask = undefined;
  readonly #response: ServerResponse;
  readonly #desk: ExchangeDesk;
  #stream: SseStream | undefined;
  #abort: Cancellation | undefined;
  #state: 'open' | 'answered' | 'gone' = 'open';

  constructor(
    desk: ExchangeDesk,
    response: ServerResponse,
    client: Client,
    idText: string,
    method: string,
    params: Buffer | undefined,
    startedAtMs: number,
  ) {
    this.#desk = desk;
    this.#response = response;
    this.client = client;
    this.idText = idText;
    this.method = method;
    this.params = params;
    this.startedAtMs = startedAtMs;
    desk.open.add(this, client.principal.id);
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
    this.#stream ??= new SseStream(this.#response, this.#desk.limits, this.#desk.beat, []);
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
    if (!principal) this.#endWith(keyless);
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
    } else writeJson(this.#response, status, parts, this.#desk.limits.writeStallMs);
  }

  #gone(): void {
    if (this.#state !== 'open') return;
    this.#settle('gone');
    this.#abort?.abort();
  }

  #settle(state: 'answered' | 'gone'): void {
    this.#state = state;
    this.#desk.open.delete(this);
  }
}
