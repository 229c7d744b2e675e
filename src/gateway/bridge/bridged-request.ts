/** The types between router and bridge: a server may need input of the client before it can answer. */
import type { RelayOptions } from '../../host/host-interface.js';
import type { CancelSignal } from '../../kernel/cancel-signal.js';
import type { Era } from '../../wire/channel.js';
import type { Exchange } from '../exchange.js';

/** The answer of a server, and its era. */
export interface Relayed {
  readonly kind: 'result' | 'error';
  readonly bytes: Buffer;
  readonly era: Era;
}

/** What the bridge adds to a request. */
export interface BridgeOptions extends Pick<RelayOptions, 'members' | 'capabilities' | 'onServerRequest'> {
  /** Replaces the signal of the exchange: a parked call outlives its first exchange. */
  readonly signal?: CancelSignal;
}

export interface BridgedRequest {
  readonly exchange: Exchange;
  readonly server: string;
  /** As last known. A modern server never asks in the middle of a call. */
  readonly serverEra?: Era | undefined;
  /** Sends the request to its server, as often as the bridge needs. Rejects with a HostError when no answer came. */
  send(options: BridgeOptions): Promise<Relayed>;
  /** Method, server, name and arguments: what sealed state is bound to. */
  identity(): Buffer;
  /** One JSON value, as the client wrote it: its answers to `input_required`. */
  readonly inputResponses: Buffer | undefined;
  /** One JSON value, as the client wrote it. */
  readonly requestState: Buffer | undefined;
  /** A parked call goes on: from now on its progress and logs go to this exchange. */
  moveTo?(exchange: Exchange): void;
}

export interface Bridge {
  /** Resolves with the answer for the client. An `input_required` is one that this client can answer. Rejects with a HostError. */
  relay(request: BridgedRequest): Promise<Relayed>;
}
