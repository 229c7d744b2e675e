/** Types of the requests, answers and events of a peer. */
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { HostError } from '../kernel/errors.js';
import type { HttpFacts } from './channel.js';
import type { InboundRequest } from './inbound-requests.js';

/** Each progress notification moves the deadline to at least now + `byMs`, but never past `untilMs`. */
export interface DeadlineExtension {
  readonly byMs: number;
  readonly untilMs: number;
  /** The server may work on the request until this time, even if the caller gives it up earlier. Absent: the deadline of the request. */
  readonly allowedUntilMs?: number;
}

export interface CauseHandlers {
  /** Takes and answers a server request that this request caused. Without it the server request is refused. */
  readonly onServerRequest?: ((request: InboundRequest) => void) | undefined;
  /** Receives other notifications that this request caused. Progress is passed to `onProgress`. */
  readonly onServerNotification?: ((method: string, params: Buffer | undefined) => void) | undefined;
}

export interface Answer {
  readonly kind: 'result' | 'error';
  /** Raw result or error object. A view: copy it to store it. */
  readonly bytes: Buffer;
  /** Flags of keys that may be in `bytes` (json-scan.ts). */
  readonly mayHold: number;
  /** The server sent a request before it answered, or may have. The answer must not be cached or shared. */
  readonly wasAsked?: true;
}

export interface RequestOptions extends CauseHandlers {
  /** Time on the clock of the peer, including the time before the request is written. */
  readonly deadlineAtMs: number;
  readonly signal?: CancelSignal | undefined;
  /** Receives raw params of progress. The token is the id of the request (`nextId`) and must be in its params. */
  readonly onProgress?: ((params: Buffer) => void) | undefined;
  readonly extend?: DeadlineExtension | undefined;
  /** Progress token in the params, if it is not the id of this request: params that are sent again keep their first token. */
  readonly progressToken?: number | undefined;
  readonly http?: HttpFacts | undefined;
  /** Opaque id of the client. Messages caused by a request of one client reach no other client. */
  readonly client?: string | undefined;
  /** Time of the clock in this tick, if the caller has just read it. */
  readonly nowMs?: number | undefined;
  /** True for `initialize`, which must not be cancelled. */
  readonly uncancellable?: boolean;
  /** The request stays open as long as the connection (`subscriptions/listen`), and does not count as unanswered. */
  readonly isLongLived?: boolean | undefined;
  /** Called before a request is sent that had to wait for a new session. */
  readonly resend?: ResendCheck | undefined;
}

export interface ResendCheck {
  /** Why the request must not be sent now. */
  refusal(): Error | undefined;
}

export interface InboundNotification {
  readonly method: string;
  readonly params: Buffer | undefined;
  readonly origin: number | undefined;
}

export interface PeerHandlers {
  /** Receives a server request that is attributed to no request. */
  request?(request: InboundRequest): void;
  notification?(notification: InboundNotification): void;
  closed?(error: HostError): void;
  /** The server may have lost the session; the connection is open. */
  sessionMaybeLost?(): void;
  /** Requests wait unsent without any activity (`ChannelListener.stalled`). */
  stalled?(activity: number): void;
  handlerError?(error: unknown): void;
  /** A server request or log line reached no client, because several requests could have caused it. */
  unattributed?(method: string): void;
}

export interface PeerCounters {
  /** Number of answers and progress notifications for settled requests. */
  late: number;
  /** Number of answers with an unknown id, or to a request that was not written yet. */
  unknown: number;
  /** Number of requests of a modern server, which must not send any. They are dropped. */
  forbidden: number;
  /** Number of server requests and log lines that reached no client, because several requests could have caused them. */
  unattributed: number;
}
