/**
 * The types between router and bridge, and the errors of the bridge. The bridge asks the client for input that a server needs
 * during a request.
 */
import type { RelayOptions } from '../../host/host-interface.js';
import type { CancelSignal } from '../../kernel/cancel-signal.js';
import { HostError } from '../../kernel/errors.js';
import { MODERN_ERRORS } from '../../session/eras/modern/protocol.js';
import type { Era } from '../../wire/channel.js';
import type { InboundRequest } from '../../wire/inbound-requests.js';
import { RPC } from '../../wire/methods.js';
import type { Exchange } from '../exchange.js';
import { type ClientCapability, describeCapabilities, requiredCapabilities } from './client-capabilities.js';

export interface Relayed {
  readonly kind: 'result' | 'error';
  readonly bytes: Buffer;
  /** Era of the server. */
  readonly era: Era;
}

export interface BridgeOptions extends Pick<RelayOptions, 'members' | 'capabilities' | 'onServerRequest'> {
  /** Replaces the signal of the exchange: a parked call outlives its first exchange. */
  readonly signal?: CancelSignal;
}

export interface BridgedRequest {
  readonly exchange: Exchange;
  readonly server: string;
  /** Last known era of the server. A modern server sends no requests during a call. */
  readonly serverEra?: Era | undefined;
  /** The bridge may call this several times. Rejects with a HostError if the server does not answer. */
  send(options: BridgeOptions): Promise<Relayed>;
  /** Method, server, name and arguments of the request. Sealed state is bound to these bytes. */
  identity(): Buffer;
  /** The client's answers to `input_required`: one JSON value as sent. */
  readonly inputResponses: Buffer | undefined;
  /** One JSON value as sent. */
  readonly requestState: Buffer | undefined;
  /** Called when a parked call continues: sends further progress and logs to this exchange. */
  moveTo?(exchange: Exchange): void;
}

export interface Bridge {
  /** Rejects with a HostError. If the answer is `input_required`, it contains only questions that this client can answer. */
  relay(request: BridgedRequest): Promise<Relayed>;
}

/** Text of a client or server is cut to this length, and JSON-escaped, before an error quotes it. */
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
