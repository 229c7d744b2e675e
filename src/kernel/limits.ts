/**
 * The bounds that hold for everything read from or written to a server, unless a server's own configuration says otherwise.
 * Each queue, buffer and table elsewhere takes its bound from here or names one of its own.
 */
const KiB = 1024;
const MiB = 1024 * KiB;

export const LIMITS = {
  /** One JSON-RPC message on any transport: a stdio line, a JSON body, one SSE event. */
  frameBytes: 8 * MiB,
  /** Nesting of arrays and objects in one message. */
  depth: 128,
  /** Values in one message of a client, at any depth: whatever they mean, each is looked at several times. */
  values: 100_000,
  /** Members of an object that one of them is looked for in. */
  members: 1_000,
  /** Messages in one JSON-RPC batch (protocol 2025-03-26 only). */
  batch: 100,
  /** Bytes waiting to be written to one server; past it a call is refused as `overloaded`. */
  outboundBytes: 16 * MiB,
  /** Requests of ours that one server may owe an answer to. */
  pendingRequests: 10_000,
  /** Requests of a server's own that may wait for our answer. */
  inboundRequests: 256,
  /** Bytes of their params, all together. */
  inboundRequestBytes: 16 * MiB,
  /** Kept of a server's stderr. */
  stderrBytes: 256 * KiB,
  /** Pages of one list. */
  listPages: 50,
  /** One tool as its server defines it. */
  toolBytes: 256 * KiB,
  /** Values in one definition that is pinned: what has more cannot be approved. */
  toolValues: 20_000,
  /** All tools of one server: each is compared with what was approved, whenever the server says that they changed. */
  toolListBytes: 4 * MiB,
  toolListItems: 10_000,
  /** Any other list of a server, which is only handed on. */
  listBytes: 64 * MiB,
  listItems: 50_000,
  /** Arguments of a call that are hashed: larger ones are sent, but neither kept, shared nor named in records. */
  hashedBytes: 256 * KiB,
  /** Text of a server quoted in an error. */
  quotedChars: 2 * KiB,
} as const;
