/**
 * A POST of a modern client: one message, checked against its headers, and handed on with nothing remembered.
 */
import type { ServerResponse } from 'node:http';
import type { Principal } from '../../policy/call.js';
import { MODERN_VERSION } from '../../session/versions.js';
import type { Envelope } from '../../wire/envelope.js';
import { NOTIFICATION } from '../../wire/rpc-codes.js';
import { modernClientId } from '../client-id.js';
import type { EndpointId } from '../endpoint-id.js';
import type { Client, ClientCapabilities } from '../exchange.js';
import { SaidCapabilities } from '../messages/client-capabilities.js';
import { failureText } from '../messages/rpc-text.js';
import { type ExchangeDesk, route } from './exchange-desk.js';
import { statusOf } from './failure-status.js';
import { ModernExchange } from './modern-exchange.js';
import { checkModernNotification, checkModernRequest } from './modern-request.js';
import { REFUSALS, type Refusal } from './refusals.js';
import { writeJson } from './reply.js';
import type { RequestHead } from './request-head.js';

export interface Caller {
  readonly principal: Principal;
  readonly endpoint: EndpointId;
  readonly head: RequestHead;
}

const saidNothing = new SaidCapabilities(undefined);

const modernClient = ({ principal, endpoint, head }: Caller, capabilities: ClientCapabilities): Client => ({
  id: modernClientId(principal, head.client),
  principal,
  era: 'modern',
  version: MODERN_VERSION,
  endpoint,
  capabilities,
});

/** Returns why the message is refused, when it is not even one to answer in its own name. */
export function takeModern(
  desk: ExchangeDesk,
  caller: Caller,
  envelope: Envelope,
  response: ServerResponse,
): Refusal | undefined {
  const { router, limits } = desk;
  const { principal, endpoint, head } = caller;
  const params = envelope.payload();
  const method = envelope.method();
  switch (envelope.kind) {
    case 'request': {
      const idText = envelope.idText() as string;
      const mirrored = (tool: string) => router.mirroredArguments(endpoint, principal, tool);
      const check = checkModernRequest({ method, params, head, mirrored });
      if (!check.ok) {
        writeJson(response, statusOf(check.failure), failureText(idText, check.failure), limits.writeStallMs);
        return undefined;
      }
      // Asked again: others may have come while its body was on its way.
      if (!desk.open.admits(principal.id)) return REFUSALS.busy;
      const client = modernClient(caller, check.capabilities);
      route(desk, new ModernExchange(desk, response, client, idText, method, params, desk.clock.nowMs()));
      return undefined;
    }
    case 'notification': {
      const failure = checkModernNotification({ method, params, head });
      if (failure) {
        writeJson(response, statusOf(failure), failureText(undefined, failure), limits.writeStallMs);
        return undefined;
      }
      response.writeHead(202);
      response.end();
      // Over HTTP a request is cancelled by closing its response, and nothing is ever initialized.
      if (method !== NOTIFICATION.cancelled && method !== NOTIFICATION.initialized)
        router.notified(modernClient(caller, saidNothing), method, params);
      return undefined;
    }
    default:
      return REFUSALS.modernAnswer;
  }
}
