/**
 * Errors of the bridge itself, for clients and servers.
 * Invariant: texts of others are quoted only cut to a length, as JSON strings.
 */
import { HostError } from '../../kernel/errors.js';
import { MODERN_ERRORS } from '../../session/eras/modern/protocol.js';
import type { Era } from '../../wire/channel.js';
import type { InboundRequest } from '../../wire/inbound-requests.js';
import { RPC } from '../../wire/rpc-codes.js';
import type { Relayed } from './bridged-request.js';
import { describeNeeds, type Need, requiredCapabilities } from './client-capabilities.js';

const quotedCharsMax = 100;
export const quoted = (text: string): string => `'${text.slice(0, quotedCharsMax)}'`;

export const rpcError = (era: Era, code: number, message: string, data?: string): Relayed => ({
  kind: 'error',
  bytes: Buffer.from(
    `{"code":${code},"message":${JSON.stringify(message)}${data === undefined ? '' : `,"data":${data}`}}`,
  ),
  era,
});

export const missingCapability = (missing: ReadonlySet<Need>): Relayed =>
  rpcError(
    'modern',
    MODERN_ERRORS.missingCapability,
    `the server needs a capability that the client did not declare: ${describeNeeds(missing)}`,
    `{"requiredCapabilities":${requiredCapabilities(missing)}}`,
  );

/** Why a `requestState` is refused. */
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

/** A legacy request that fails for lack of input: a tool call as a result that the model can read, like SDK 2.4 does. */
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

export const refuseUndeclared = (request: InboundRequest, need: Need): void =>
  request.refuse(RPC.methodNotFound, `the client does not support ${describeNeeds([need])}`);

export const brokenServer = (server: string, what: string, reason: string): HostError =>
  new HostError('protocol_error', `server '${server}': ${what}`, {
    server,
    reason,
    phase: 'answered',
    execution: 'uncertain',
  });

export const cancelled = (server: string): HostError =>
  new HostError('cancelled', `server '${server}': the request was cancelled`, { server });
