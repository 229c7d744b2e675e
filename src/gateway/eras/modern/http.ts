/** Modern clients over HTTP: one message per POST. Nothing is stored between requests. */
import type { ServerResponse } from 'node:http';
import { compositeKey } from '../../../policy/composite-key.js';
import { MODERN_VERSION } from '../../../session/eras/modern/protocol.js';
import type { Envelope } from '../../../wire/envelope.js';
import { NOTIFICATION } from '../../../wire/rpc-codes.js';
import { DeclaredCapabilities } from '../../bridge/client-capabilities.js';
import type { Client, ClientCapabilities, RpcFailure } from '../../exchange.js';
import { type Caller, type IngressContext, route } from '../../http/ingress-context.js';
import { REFUSALS, type Refusal } from '../../http/refusals.js';
import { writeJson } from '../../http/reply.js';
import { failureText } from '../../messages/rpc-text.js';
import type { HttpEra } from '../era.js';
import { checkModernNotification, checkModernRequest } from './header-checks.js';
import { ModernHttpExchange, statusOf } from './http-exchange.js';

export const createModernHttp = (context: IngressContext): HttpEra => new ModernHttp(context);

class ModernHttp implements HttpEra {
  readonly #context: IngressContext;

  constructor(context: IngressContext) {
    this.#context = context;
  }

  get clients(): number {
    return this.#context.open.endless;
  }

  post(caller: Caller, envelope: Envelope, response: ServerResponse): Refusal | undefined {
    switch (envelope.kind) {
      case 'request':
        return this.#request(caller, envelope, response);
      case 'notification':
        return this.#notification(caller, envelope, response);
      default:
        return REFUSALS.noAnswers;
    }
  }

  #request(caller: Caller, envelope: Envelope, response: ServerResponse): Refusal | undefined {
    const { router, open, clock } = this.#context;
    const idText = envelope.idText() as string;
    const method = envelope.method();
    const params = envelope.payload();
    const check = checkModernRequest(method, params, caller, router);
    if (!check.ok) return this.#fail(response, idText, check.failure);
    // Second check: other requests may have started while this body was read.
    if (!open.admits(caller.principal.id)) return REFUSALS.busy;
    const request = { idText, method, params, startedAtMs: clock.nowMs() };
    const client = clientOf(caller, check.capabilities);
    route(this.#context, new ModernHttpExchange(this.#context, response, client, request));
    return undefined;
  }

  #notification(caller: Caller, envelope: Envelope, response: ServerResponse): undefined {
    const method = envelope.method();
    const params = envelope.payload();
    const failure = checkModernNotification(method, params, caller.headers);
    if (failure) return this.#fail(response, undefined, failure);
    response.writeHead(202);
    response.end();
    // A modern client cancels a request by closing its response, and the era has no handshake.
    if (method !== NOTIFICATION.cancelled && method !== NOTIFICATION.initialized)
      this.#context.router.notified(clientOf(caller, nothingDeclared), method, params);
    return undefined;
  }

  #fail(response: ServerResponse, idText: string | undefined, failure: RpcFailure): undefined {
    writeJson(response, statusOf(failure), failureText(idText, failure), this.#context.limits.writeStallMs);
  }
}

const nothingDeclared = new DeclaredCapabilities(undefined);

/**
 * Servers with `isolation: "per-client"` distinguish modern clients by the header `Hostler-Client`; without it, by the key.
 * The id includes the key, and key names have no colon. So a client never reaches the instance of another key.
 */
const clientIdOf = (key: string, name: string | undefined): string =>
  name === undefined ? key : compositeKey('client', key, name);

const clientOf = ({ principal, endpoint, headers }: Caller, capabilities: ClientCapabilities): Client => ({
  id: clientIdOf(principal.id, headers['hostler-client']),
  principal,
  era: 'modern',
  version: MODERN_VERSION,
  endpoint,
  capabilities,
});
