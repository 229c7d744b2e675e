/**
 * A POST of a modern client: one message, checked against its headers, and handed on with nothing remembered.
 */
import type { ServerResponse } from 'node:http';
import type { Principal } from '../../../policy/operation.js';
import { MODERN_VERSION } from '../../../session/eras/modern/protocol.js';
import type { Envelope } from '../../../wire/envelope.js';
import { NOTIFICATION } from '../../../wire/rpc-codes.js';
import { modernClientId } from '../../client-id.js';
import type { EndpointId } from '../../endpoint-id.js';
import type { Client, ClientCapabilities } from '../../exchange.js';
import { type IngressContext, route } from '../../http/ingress-context.js';
import { REFUSALS, type Refusal } from '../../http/refusals.js';
import { writeJson } from '../../http/reply.js';
import type { RequestHead } from '../../http/request-head.js';
import { DeclaredCapabilities } from '../../messages/client-capabilities.js';
import { failureText } from '../../messages/rpc-text.js';
import { statusOf } from './failure-status.js';
import { checkModernNotification, checkModernRequest } from './header-checks.js';
import { ModernExchange } from './http-exchange.js';

export interface Caller {
  readonly principal: Principal;
  readonly endpoint: EndpointId;
  readonly head: RequestHead;
}

const saidNothing = new DeclaredCapabilities(undefined);

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
  context: IngressContext,
  caller: Caller,
  envelope: Envelope,
  response: ServerResponse,
): Refusal | undefined {
  const { router, limits } = context;
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
      if (!context.open.admits(principal.id)) return REFUSALS.busy;
      const client = modernClient(caller, check.capabilities);
      route(context, new ModernExchange(context, response, client, idText, method, params, context.clock.nowMs()));
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
