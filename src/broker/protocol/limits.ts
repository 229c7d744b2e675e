/** Bounds of the broker protocol. Both sides use them. */
const MiB = 1024 * 1024;

export const brokerLimits = {
  /** One message on a WebSocket or on NATS, envelope included. */
  messageBytes: 4 * MiB,
  /** One reply body. The rest of `messageBytes` is for the envelope. */
  replyBytes: 4 * MiB - 64 * 1024,
  /** Larger progress notifications are dropped. Progress is never stored. */
  progressBytes: 64 * 1024,
  /** Longest time that a call may take, from its first sending on. */
  deadlineMs: 10 * 60_000,
  /** Calls of one worker that are in the log and not acknowledged. */
  callsPerWorker: 256,
  /** Sendings of one call, all of the same worker, that wait for its receipt or its outcome. */
  sendingsPerCall: 64,
  /** Arguments of the calls of one worker that a host has in memory. */
  requestBytesPerWorker: 64 * MiB,
  /** Replies of one worker that are in the log and not acknowledged. */
  replyBytesPerWorker: 64 * MiB,
  /** All replies in the log. The rest of 256 MiB is for rows and the files of SQLite. */
  replyBytesInAll: 192 * MiB,
  /** Keys that callers chose, which are remembered for a day. Their replies may use half of `replyBytesInAll`. */
  callersKeys: 100_000,
  callersKeyBytes: 96 * MiB,
  /** Limit per worker, so that one worker cannot use up the room of all. */
  callersKeysPerWorker: 25_000,
  callersKeyBytesPerWorker: 24 * MiB,
  callersKeyMs: 24 * 3_600_000,
  /** A reply that its worker never acknowledges is removed this long after the deadline of its call. */
  unackedMs: 10 * 60_000,
  /** Keys in one `ask` or `ack` message. */
  keysPerMessage: 256,
  /** How many times a repeatable call is begun in all, if its hosts end while it runs. */
  attempts: 3,
  /** One manifest. For a larger one, the error names the role and its largest server. */
  manifestBytes: 4 * MiB - 64 * 1024,
  nameChars: 256,
  /** A sequence of the store on NATS, with its signature. */
  seenChars: 100,
  revisionChars: 128,
  traceStateChars: 512,
} as const;

/** Keys, sessions, store ids and owners. On NATS they are parts of subjects. */
export const idPattern = /^[A-Za-z0-9_-]{1,128}$/;
