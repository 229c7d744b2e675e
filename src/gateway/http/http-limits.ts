/** The limits of the HTTP listener. Tests use smaller ones. */
const KiB = 1024;
const MiB = 1024 * KiB;

export const HTTP_LIMITS = {
  /** All headers of one request together. */
  headerBytes: 16 * KiB,
  /** From the first byte of a request, or from the start of its connection, to the end of its headers. */
  headerMs: 10_000,
  bodyBytes: 4 * MiB,
  /** All incomplete bodies together: a thousand clients may each have sent nearly all of one. */
  bodiesBytes: 64 * MiB,
  /** For the body, after the time of the headers. */
  bodyMs: 30_000,
  /** How often `headerMs` and `bodyMs` are checked. */
  checkEveryMs: 1_000,
  /** Shared between keys (http-connections.ts). */
  connections: 4_096,
  /** A connection without a request on it. */
  idleSocketMs: 60_000,
  /** Refused connections that are read on, so that a client that still writes gets the answer. */
  lingering: 256,
  /** How long one of those may last, and what it may send. */
  lingerMs: 5_000,
  lingerBytes: 16 * MiB,
  /** Open requests of all clients, shared between keys (open-exchanges.ts). */
  exchanges: 10_000,
  /** Open requests of one legacy session: they outlive their connections. */
  exchangesPerSession: 1_000,
  /** Unread bytes of one event stream, before the next event is written. */
  bufferedBytes: 8 * MiB,
  /** How long a client may read nothing of what was written. */
  writeStallMs: 30_000,
  /** After this time without output an open request is answered with an event stream. */
  silentMs: 10_000,
  /** Between two comments on an open event stream. */
  keepAliveEveryMs: 15_000,
  sessions: 1_000,
  /** A session without an open request or stream. */
  sessionIdleMs: 30 * 60_000,
  /** Replaces `sessionIdleMs` while more than half of the session table is taken. */
  crowdedIdleMs: 5 * 60_000,
  /** Grace time after the answer to `initialize`: until the client sends its next message, the session is not evicted. */
  openingMs: 10_000,
  /** Unanswered requests to the client of one session. */
  asksPerSession: 64,
  /** Events that one session stores for a client that reconnects. */
  eventsPerSession: 1_000,
  eventBytesPerSession: MiB,
  /** Stored events of all sessions together. */
  eventBytes: 32 * MiB,
  batch: 100,
};

export type HttpLimits = Readonly<typeof HTTP_LIMITS>;
