/**
 * Errors that the bridge itself sends to clients and servers.
 * Invariant: text from a client or server is cut to a fixed length and JSON-escaped before an error quotes it.
 */
import { HostError } from '../../kernel/errors.js';
import { MODERN_ERRORS } from '../../session/eras/modern/protocol.js';
import type { Era } from '../../wire/channel.js';
import type { InboundRequest } from '../../wire/inbound-requests.js';
import { RPC } from '../../wire/rpc-codes.js';
import type { Relayed } from './bridged-request.js';
import { type ClientCapability, describeCapabilities, requiredCapabilities } from './client-capabilities.js';

const quotedCharsMax = 100;
export const quoted = (text: string): string => `'${text.slice(0, quotedCharsMax)}'`;

export const rpcError = (era: Era, code: number, message: string, data?: string): Relayed => ({
  kind: 'error',
  bytes: Buffer.from(
    `{"code":${code},"message":${JSON.stringify(message)}${data === undefined ? '' : `,"data":${data}`}}`,
  ),
  era,
});

export const missingCapability = (missing: ReadonlySet<ClientCapability>): Relayed =>
  rpcError(
    'modern',
    MODERN_ERRORS.missingCapability,
    `the server needs a capability that the client did not declare: ${describeCapabilities(missing)}`,
    `{"requiredCapabilities":${requiredCapabilities(missing)}}`,
  );

export type StateFault = 'tampered' | 'expired' | 'other_caller' | 'other_request' | 'not_waiting';

const faultTexts: Record<StateFault, string> = {
  tampered: 'requestState was not issued here, or it was changed',
  expired: 'requestState has expired; send the request again without it',
  other_caller: 'requestState was issued to another caller or for another server',
  other_request: 'requestState belongs to another request: method, name and arguments must be those of the first one',
  not_waiting: 'no call waits for this requestState; it was used already, or the call has ended',
};

export const invalidState = (fault: StateFault): Relayed =>
  rpcError('modern', RPC.invalidParams, faultTexts[fault], `{"reason":"invalid_request_state","fault":"${fault}"}`);

/** A failed tool call becomes a result, which the model can read. SDK 2.4 does the same. */
export function legacyFailure(method: string, message: string): Relayed {
  if (method !== 'tools/call') return rpcError('legacy', RPC.internalError, message);
  const text = JSON.stringify(message);
  return {
    kind: 'result',
    bytes: Buffer.from(`{"content":[{"type":"text","text":${text}}],"isError":true}`),
    era: 'legacy',
  };
}

export const refuseUnknown = (request: InboundRequest): void =>
  request.refuse(RPC.methodNotFound, `no client can be asked ${quoted(request.method)}`);

export const refuseUndeclared = (request: InboundRequest, need: ClientCapability): void =>
  request.refuse(RPC.methodNotFound, `the client does not support ${describeCapabilities([need])}`);

export const brokenServer = (server: string, what: string, reason: string): HostError =>
  new HostError('protocol_error', `server '${server}': ${what}`, {
    server,
    reason,
    phase: 'answered',
    execution: 'uncertain',
  });

export const cancelled = (server: string): HostError =>
  new HostError('cancelled', `server '${server}': the request was cancelled`, { server });
