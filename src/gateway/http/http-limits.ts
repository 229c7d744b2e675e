/** The limits of the HTTP listener. Tests use smaller ones. */
const KiB = 1024;
const MiB = 1024 * KiB;

export const HTTP_LIMITS = {
  /** Total size of the headers of one request. */
  headerBytes: 16 * KiB,
  /** Time from the first byte of a request, or the start of its connection, to the end of its headers. */
  headerMs: 10_000,
  bodyBytes: 4 * MiB,
  /** Total of all incomplete bodies. Without it, 1,000 clients could each buffer nearly 4 MiB. */
  bodiesBytes: 64 * MiB,
  /** Time for the body; `headerMs` + `bodyMs` limits the whole request. */
  bodyMs: 30_000,
  /** How often `headerMs` and `bodyMs` are checked. */
  checkEveryMs: 1_000,
  /** Open connections, shared between keys (http-connections.ts). */
  connections: 4_096,
  /** How long a connection may stay open without a request. */
  idleSocketMs: 60_000,
  /** Refused connections that are drained before close, so that a client that is still sending gets the answer. */
  lingering: 256,
  /** Time and bytes of draining one refused connection (`LingeringClose`). */
  lingerMs: 5_000,
  lingerBytes: 16 * MiB,
  /** Open requests of all clients, shared between keys (open-exchanges.ts). */
  exchanges: 10_000,
  /** Open requests of one legacy session. They outlive their connections, so the connection limit does not bound them. */
  exchangesPerSession: 1_000,
  /** Unread bytes of one event stream above which the next write disconnects the client. */
  bufferedBytes: 8 * MiB,
  /** A client that reads nothing for this long is disconnected. */
  writeStallMs: 30_000,
  /** After this time without output an open request is answered with an event stream. */
  silentMs: 10_000,
  /** Interval of keep-alive comments on an open event stream. */
  keepAliveEveryMs: 15_000,
  sessions: 1_000,
  /** How long a session lives without an open request or stream. */
  sessionIdleMs: 30 * 60_000,
  /** Replaces `sessionIdleMs` while more than half of the session table is in use. */
  crowdedIdleMs: 5 * 60_000,
  /** Grace time after `initialize`, in which a session without a second message is not evicted. */
  openingMs: 10_000,
  /** Unanswered requests to the client of one session. */
  asksPerSession: 64,
  /** Events that one session stores for a client that reconnects. */
  eventsPerSession: 1_000,
  eventBytesPerSession: MiB,
  /** Total bytes of stored events. */
  eventBytes: 32 * MiB,
  batch: 100,
};

export type HttpLimits = Readonly<typeof HTTP_LIMITS>;
