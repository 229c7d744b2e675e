/** Limits for everything read from or written to a server. Other queues, buffers and tables define their own. */
const KiB = 1024;
const MiB = 1024 * KiB;

export const LIMITS = {
  /** One JSON-RPC message on any transport: a stdio line, a JSON body, one SSE event. */
  frameBytes: 8 * MiB,
  /** Nesting of arrays and objects in one message. */
  depth: 128,
  /** Values in one message of a client, at any depth: each is read several times. */
  values: 100_000,
  /** Members of an object in which a member is looked up. */
  members: 1_000,
  /** Messages in one JSON-RPC batch (protocol 2025-03-26 only). */
  batch: 100,
  /** Bytes queued for one server; past it a call is refused as `overloaded`. */
  outboundBytes: 16 * MiB,
  /** Requests to one server that wait for an answer. */
  pendingRequests: 10_000,
  /** Server requests that wait for our answer. */
  inboundRequests: 256,
  /** Bytes of their params, in total. */
  inboundRequestBytes: 16 * MiB,
  /** Buffered stderr of one server. */
  stderrBytes: 256 * KiB,
  /** Pages of one list. */
  listPages: 50,
  /** One tool as its server defines it. */
  toolBytes: 256 * KiB,
  /** One item of any other list: an icon may be in it. */
  listItemBytes: 1024 * KiB,
  /** Values in one pinned definition. A definition with more cannot be approved. */
  toolValues: 20_000,
  /** All tools of one server. Each change of the list compares all of them with the approved ones. */
  toolListBytes: 4 * MiB,
  toolListItems: 10_000,
  /** Any other list of a server, which is only passed on. */
  listBytes: 64 * MiB,
  listItems: 50_000,
  /** Arguments of a call that are hashed. Larger ones are sent, but not cached, shared or recorded. */
  hashedBytes: 256 * KiB,
  /** Text of a server quoted in an error. */
  quotedChars: 2 * KiB,
} as const;
