/**
 * What goes into a peer and what comes out of it.
 */
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { HostError } from '../kernel/errors.js';
import type { CauseHandlers, DeadlineExtension } from './attribution.js';
import type { HttpFacts } from './channel.js';
import type { InboundRequest } from './inbound-requests.js';

export type { DeadlineExtension };

export interface Answer {
  readonly kind: 'result' | 'error';
  /** The result or error object as the server wrote it. A view: copy it to keep it for long. */
  readonly bytes: Buffer;
  /** Keys that may be in it (json-scan.ts). */
  readonly mayHold: number;
  /** The server has asked something, or may have, before it answered: no other request would be answered like this. */
  readonly wasAsked?: true;
}

export interface RequestOptions extends CauseHandlers {
  /** On the peer's clock. Waiting to be written counts. */
  readonly deadlineAtMs: number;
  readonly signal?: CancelSignal | undefined;
  /** Params of each progress notification, raw. The token of a request is its id (`nextId`), and must stand in its params. */
  readonly onProgress?: ((params: Buffer) => void) | undefined;
  readonly extend?: DeadlineExtension | undefined;
  /** The token in the params, where it is another: that of an earlier request with the same params. */
  readonly progressToken?: number | undefined;
  readonly http?: HttpFacts | undefined;
  /**
   * The client that the request is made for; opaque, the same text for all requests of one client. What the server says because
   * of one client's request never reaches another client.
   */
  readonly client?: string | undefined;
  /** What the clock says in this very tick, where it was just asked. */
  readonly nowMs?: number | undefined;
  /** `initialize` must not be cancelled: it is only given up. */
  readonly uncancellable?: boolean;
  /** Stays open for as long as the connection does, such as `subscriptions/listen`: it is not among what the server owes. */
  readonly isStanding?: boolean | undefined;
}

export interface InboundNotification {
  readonly method: string;
  readonly params: Buffer | undefined;
  /** Our request that it belongs to, where the channel can tell. */
  readonly origin: number | undefined;
}

export interface PeerHandlers {
  /** What no request of ours takes. */
  request?(request: InboundRequest): void;
  notification?(notification: InboundNotification): void;
  closed?(error: HostError): void;
  /** The server may have forgotten our session; the connection is still good. */
  sessionDoubted?(): void;
  /** Requests wait unsent and nothing moves (`ChannelListener.stalled`). */
  stalled?(activity: number): void;
  /** A handler above threw. The connection goes on. */
  handlerError?(error: unknown): void;
  /** A question or a log line of the server reached no client: several requests could be behind it. */
  unattributed?(method: string): void;
}

export interface PeerCounters {
  /** Answers and progress for requests that were already settled. */
  late: number;
  /** Answers with an id we never sent, or that came before their request was written. */
  unknown: number;
  /** Requests a modern server must not send, dropped. */
  forbidden: number;
  /** Questions and log lines of the server that reached no client, because several requests could be behind them. */
  unattributed: number;
}
