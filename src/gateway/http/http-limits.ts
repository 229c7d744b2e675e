/** The bounds of the HTTP ingress, each with a name. Tests hand in smaller ones. */
const KiB = 1024;
const MiB = 1024 * KiB;

export interface HttpLimits {
  /** All headers of one request together. */
  readonly headerBytes: number;
  /** From the first byte of a request, or from the start of its connection, to the end of its headers. */
  readonly headerMs: number;
  readonly bodyBytes: number;
  /** Of all bodies that are being read: a thousand clients may each have sent nearly all of one, and wait. */
  readonly bodiesBytes: number;
  /** For the body, after the time of the headers. */
  readonly bodyMs: number;
  /** How often the two times above are looked at. */
  readonly checkEveryMs: number;
  /** Shared between keys (connection-shares.ts). */
  readonly connections: number;
  /** A connection without a request on it. */
  readonly idleSocketMs: number;
  /** Refused connections whose clients still write, and are listened to so that they hear why. */
  readonly lingering: number;
  /** For one of those to end, and what it may send until then. */
  readonly lingerMs: number;
  readonly lingerBytes: number;
  /** Requests that wait for their answer, of all clients; shared between keys (fair-shares.ts). */
  readonly exchanges: number;
  /** Of one legacy session, whose requests outlive their connections. */
  readonly exchangesPerSession: number;
  /** Bytes that one event stream may have waiting for its reader when the next event comes. */
  readonly bufferedBytes: number;
  /** A reader that takes nothing of what waits for it. */
  readonly writeStallMs: number;
  /** Without a word, after which a request that is still open is answered with an event stream. */
  readonly silentMs: number;
  /** Between two comments on an open event stream. */
  readonly keepAliveEveryMs: number;
  readonly sessions: number;
  /** A session without an open request or stream. */
  readonly sessionIdleMs: number;
  /** Replaces `sessionIdleMs` while more than half of the session table is taken. */
  readonly crowdedIdleMs: number;
  /** Grace time after the answer to `initialize`: until the client sends its next message, the session is not evicted. */
  readonly openingMs: number;
  /** Questions of ours that one session may owe an answer to. */
  readonly asksPerSession: number;
  /** What one session keeps for a client that comes back. */
  readonly eventsPerSession: number;
  readonly eventBytesPerSession: number;
  /** Of all sessions together. */
  readonly eventBytes: number;
  readonly batch: number;
}

export const HTTP_LIMITS: HttpLimits = {
  headerBytes: 16 * KiB,
  headerMs: 10_000,
  bodyBytes: 4 * MiB,
  bodiesBytes: 64 * MiB,
  bodyMs: 30_000,
  checkEveryMs: 1_000,
  connections: 4_096,
  idleSocketMs: 60_000,
  lingering: 256,
  lingerMs: 5_000,
  lingerBytes: 16 * MiB,
  exchanges: 10_000,
  exchangesPerSession: 1_000,
  bufferedBytes: 8 * MiB,
  writeStallMs: 30_000,
  silentMs: 10_000,
  keepAliveEveryMs: 15_000,
  sessions: 1_000,
  sessionIdleMs: 30 * 60_000,
  crowdedIdleMs: 5 * 60_000,
  openingMs: 10_000,
  asksPerSession: 64,
  eventsPerSession: 1_000,
  eventBytesPerSession: MiB,
  eventBytes: 32 * MiB,
  batch: 100,
};
