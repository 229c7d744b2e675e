/**
 * Between the router, which knows where a request goes, and the bridge, which knows how the two eras ask for more: a server
 * may need something of the client before it can answer.
 */

import type { RelayOptions } from '../../host/host-interface.js';
import type { CancelSignal } from '../../kernel/cancel-signal.js';
import type { Era } from '../../wire/channel.js';
import type { Exchange } from '../exchange.js';

/** What came back, and in which era's words. */
export interface Relayed {
  readonly kind: 'result' | 'error';
  readonly bytes: Buffer;
  readonly era: Era;
}

/** What the bridge adds to a request; the router adds the rest. */
export interface BridgeOptions extends Pick<RelayOptions, 'members' | 'capabilities' | 'onServerRequest'> {
  /** When it is there, this and not the exchange's own ends the call upstream: a parked call outlives its first exchange. */
  readonly signal?: CancelSignal;
}

export interface BridgedRequest {
  readonly exchange: Exchange;
  readonly server: string;
  /** As last known; absent: not known. A modern server never asks in the middle of a call, and nothing is prepared for it. */
  readonly serverEra?: Era | undefined;
  /** Sends the request to its server, as often as the bridge needs. Rejects with a HostError when no answer came. */
  send(options: BridgeOptions): Promise<Relayed>;
  /** The bytes that make it this request and no other: method, name or URI, arguments. Only a bridge that seals state asks. */
  identity(): Buffer;
  /** Of a modern client that answers what it was asked; as it wrote them. */
  readonly inputResponses: Buffer | undefined;
  /** One JSON value, as the client wrote it. */
  readonly requestState: Buffer | undefined;
  /**
   * A call that was parked goes on: from now on this exchange waits for it, and progress and logs of the call are its own,
   * under its own progress token. Called on the request whose `send` is still running, with the exchange that came back.
   */
  moveTo?(exchange: Exchange): void;
}

export interface Bridge {
  /**
   * Resolves with what the client is to be told. An `input_required` in it is one that this client can go on from. Rejects
   * with a HostError.
   */
  relay(request: BridgedRequest): Promise<Relayed>;
}
