/**
 * The legacy era on a pipe: one session, opened by `initialize`, and the requests to its client.
 * Invariant: the router gets the session once, after the answer to `initialize` and a further message of the client.
 */
import { LIMITS } from '../../../kernel/limits.js';
import { hasBatches } from '../../../session/eras/legacy/revisions.js';
import { META } from '../../../session/eras/modern/protocol.js';
import type { JsonText } from '../../../wire/channel.js';
import type { Envelope } from '../../../wire/envelope.js';
import { NOTIFICATION, RPC } from '../../../wire/methods.js';
import {
  type Ask,
  type Client,
  type ClientSession,
  type Exchange,
  isFailure,
  notificationText,
  type RpcFailure,
} from '../../exchange.js';
import type { StdioEra, StdioPipe } from '../era.js';
import { ClientRequests } from './client-requests.js';
import { type Initialize, readInitialize } from './initialize.js';

export class LegacyStdio implements StdioEra {
  readonly #pipe: StdioPipe;
  readonly #requests: ClientRequests;
  #session: StdioSession | undefined;
  /** True after a further request or `initialized`, which may arrive before `initialize` is answered. */
  #hasProceeded = false;
  /** `opened`: the router has the session, whose signal reports its end. */
  #phase: 'opening' | 'answered' | 'opened' = 'opening';

  constructor(pipe: StdioPipe) {
    this.#pipe = pipe;
    this.#requests = new ClientRequests(pipe.clock, LIMITS.inboundRequests, pipe.lastRequestId);
  }

  get sessions(): number {
    return this.#session ? 1 : 0;
  }

  get hasBatches(): boolean {
    return this.#session !== undefined && hasBatches(this.#session.version);
  }

  clientOf(method: string, params: Buffer | undefined, isInBatch: boolean): Client | RpcFailure {
    if (method === 'initialize') return this.#open(params, isInBatch);
    if (!this.#session) return noSession;
    this.#proceed();
    return this.#session;
  }

  notified(method: string): void {
    if (method !== NOTIFICATION.initialized) return;
    if (this.#session) this.#requests.initialized();
    this.#proceed();
  }

  ask(owner: Exchange, ...[method, params, limits]: Parameters<Ask>): ReturnType<Ask> {
    return this.#requests.ask(owner, this.#pipe.write, method, params, limits);
  }

  answered(envelope: Envelope): void {
    this.#requests.answered(envelope);
  }

  ending(exchange: Exchange): void {
    this.#requests.withdraw(exchange);
  }

  ended({ method, client }: Exchange, hasSucceeded: boolean): void {
    if (method !== 'initialize' || client !== this.#session) return;
    if (hasSucceeded) {
      this.#phase = 'answered';
      if (this.#hasProceeded) this.#proceed();
    } else {
      this.#session.end();
      this.#session = undefined;
    }
  }

  clientInputEnded(): void {
    this.#requests.end();
  }

  end(): boolean {
    this.#session?.end();
    this.#session = undefined;
    return this.#phase === 'opened';
  }

  #open(params: Buffer | undefined, isInBatch: boolean): StdioSession | RpcFailure {
    if (isInBatch) return invalid('initialize must not be part of a batch');
    if (this.#session) return invalid('this pipe has a session already');
    const read = readInitialize(params);
    if (isFailure(read)) return read;
    this.#hasProceeded = false;
    // The protocol allows no notification before the answer to `initialize`.
    this.#session = new StdioSession(this.#pipe, read, (method, text) => {
      if (this.#phase !== 'opening') this.#pipe.writeNotification(notificationText(method, text));
    });
    return this.#session;
  }

  #proceed(): void {
    this.#hasProceeded = true;
    if (!this.#session || this.#phase !== 'answered') return;
    this.#phase = 'opened';
    this.#pipe.opened(this.#session);
  }
}

class StdioSession implements ClientSession {
  readonly id: ClientSession['id'];
  readonly era = 'legacy';
  readonly principal: ClientSession['principal'];
  readonly endpoint: ClientSession['endpoint'];
  readonly version: string;
  readonly capabilities: ClientSession['capabilities'];
  readonly notify: (method: string, params: JsonText | undefined) => void;
  readonly #abort = new AbortController();

  constructor({ id, principal, endpoint }: StdioPipe, initialize: Initialize, notify: ClientSession['notify']) {
    this.id = id;
    this.principal = principal;
    this.endpoint = endpoint;
    this.version = initialize.version;
    this.capabilities = initialize.capabilities;
    this.notify = notify;
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  end(): void {
    this.#abort.abort();
  }
}

const invalid = (message: string): RpcFailure => ({ code: RPC.invalidRequest, message });

const noSession: RpcFailure = {
  code: RPC.invalidParams,
  message: `send ${META.version} in params._meta, or open a session with initialize first`,
};
