/**
 * The types between router and bridge, and the errors that the bridges of all eras share. The bridge asks the client for input that a
 * server needs during a request.
 */
import type { RelayOptions } from '../../host/host-interface.js';
import type { CancelSignal } from '../../kernel/cancel-signal.js';
import { HostError } from '../../kernel/errors.js';
import type { ServerEra } from '../../session/eras/server-era.js';
import type { Era } from '../../wire/channel.js';
import type { InboundRequest } from '../../wire/inbound-requests.js';
import { RPC } from '../../wire/methods.js';
import type { Client, Exchange } from '../exchange.js';
import { type ClientCapability, describeCapabilities } from './client-capabilities.js';

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
  /** Last known era of the server. */
  readonly serverEra?: ServerEra | undefined;
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
  /** Ends the calls that wait for an answer of a client for which `isMeant` is true: such a client cannot answer any more. */
  endWaiting?(isMeant: (client: Client) => boolean): void;
  /** The gateway stops: no client can continue a call. */
  close?(): void;
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

export const refuseUnknown = (request: InboundRequest): void =>
  request.refuse(RPC.methodNotFound, `no client supports the request ${quoted(request.method)}`);

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
