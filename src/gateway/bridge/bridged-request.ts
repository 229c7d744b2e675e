/** The types between router and bridge. The bridge asks the client for input that a server needs during a request. */
import type { RelayOptions } from '../../host/host-interface.js';
import type { CancelSignal } from '../../kernel/cancel-signal.js';
import type { Era } from '../../wire/channel.js';
import type { Exchange } from '../exchange.js';

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
