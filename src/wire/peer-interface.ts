/** Types of the requests, answers and events of a peer. */
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { HostError } from '../kernel/errors.js';
import type { HttpFacts } from './channel.js';
import type { InboundRequest } from './inbound-requests.js';

/** Each progress moves the deadline to at least now + `byMs`, but never past `untilMs`. */
export interface DeadlineExtension {
  readonly byMs: number;
  readonly untilMs: number;
  /** How long the server may take, even if its caller allows less. Absent: until the deadline of the request. */
  readonly allowedUntilMs?: number;
}

/** Receivers of what a server sends because of a request. */
export interface CauseHandlers {
  /** Takes and answers a server request that this request caused. Without it the server request is refused. */
  readonly onServerRequest?: ((request: InboundRequest) => void) | undefined;
  /** Other notifications that this request caused. Progress goes to `onProgress`. */
  readonly onServerNotification?: ((method: string, params: Buffer | undefined) => void) | undefined;
}

export interface Answer {
  readonly kind: 'result' | 'error';
  /** The result or error object, raw. A view: copy it to keep it for long. */
  readonly bytes: Buffer;
  /** Flags of the keys that may be in it (json-scan.ts). */
  readonly mayHold: number;
  /** The server sent a request before it answered, or may have: the answer must not be cached or shared. */
  readonly wasAsked?: true;
}

export interface RequestOptions extends CauseHandlers {
  /** On the peer's clock, including the time before the request is written. */
  readonly deadlineAtMs: number;
  readonly signal?: CancelSignal | undefined;
  /** Params of each progress notification, raw. The token is the request's id (`nextId`) and must be in its params. */
  readonly onProgress?: ((params: Buffer) => void) | undefined;
  readonly extend?: DeadlineExtension | undefined;
  /** The token in the params, when it is that of an earlier request with the same params. */
  readonly progressToken?: number | undefined;
  readonly http?: HttpFacts | undefined;
  /** Opaque id of the client, the same for all its requests. Messages that one client's request caused reach no other client. */
  readonly client?: string | undefined;
  /** The clock's time in this tick, if the caller has just read it. */
  readonly nowMs?: number | undefined;
  /** For `initialize`, which must not be cancelled. */
  readonly uncancellable?: boolean;
  /** The request stays open as long as the connection (`subscriptions/listen`), and does not count as owed. */
  readonly isStanding?: boolean | undefined;
}

export interface InboundNotification {
  readonly method: string;
  readonly params: Buffer | undefined;
  /** Id of our request that caused it, where the channel knows. */
  readonly origin: number | undefined;
}

export interface PeerHandlers {
  /** A server request that is attributed to no request of ours. */
  request?(request: InboundRequest): void;
  notification?(notification: InboundNotification): void;
  closed?(error: HostError): void;
  /** The server may have lost our session; the connection is open. */
  sessionDoubted?(): void;
  /** Requests wait unsent without any activity (`ChannelListener.stalled`). */
  stalled?(activity: number): void;
  /** One of the handlers threw. The connection stays open. */
  handlerError?(error: unknown): void;
  /** A server request or log line reached no client, because several requests could have caused it. */
  unattributed?(method: string): void;
}

export interface PeerCounters {
  /** Answers and progress for requests that were already settled. */
  late: number;
  /** Answers with an unknown id, or to a request that was not written yet. */
  unknown: number;
  /** Requests of a modern server, which must not send any. They are dropped. */
  forbidden: number;
  /** Server requests and log lines that reached no client, because several requests could have caused them. */
  unattributed: number;
}
