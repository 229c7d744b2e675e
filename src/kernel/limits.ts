/** Limits for all data read from or written to a server. Other queues, buffers and tables define their limits locally. */
const KiB = 1024;
const MiB = 1024 * KiB;

export const LIMITS = {
  /** One JSON-RPC message on any transport: a stdio line, a JSON body, one SSE event. */
  frameBytes: 8 * MiB,
  depth: 128,
  /** Values in one client message, at any depth. Each value is read several times. */
  values: 100_000,
  /** Members of an object in which a member is looked up. */
  members: 1_000,
  /** Messages in one JSON-RPC batch (protocol 2025-03-26 only). */
  batch: 100,
  /** Bytes queued for one server. Beyond this limit a call is refused as `overloaded`. */
  outboundBytes: 16 * MiB,
  /** Unanswered requests that Hostler sent to one server. */
  pendingRequests: 10_000,
  /** Unanswered requests that one server sent to Hostler. */
  inboundRequests: 256,
  /** Total bytes of the params of `inboundRequests`. */
  inboundRequestBytes: 16 * MiB,
  stderrBytes: 256 * KiB,
  listPages: 50,
  /** One tool definition. */
  toolBytes: 256 * KiB,
  /** One item of any other list. It may contain an icon. */
  listItemBytes: 1024 * KiB,
  /** Values in one pinned definition. A definition with more cannot be approved. */
  toolValues: 20_000,
  /** All tools of one server. Each change of the list compares all of them with the approved ones. */
  toolListBytes: 4 * MiB,
  toolListItems: 10_000,
  /** Any other list of a server. It is only forwarded. */
  listBytes: 64 * MiB,
  listItems: 50_000,
  /** Arguments of a call that are hashed. A call with larger arguments is sent, but not cached, shared or recorded. */
  hashedBytes: 256 * KiB,
  quotedChars: 2 * KiB,
} as const;
