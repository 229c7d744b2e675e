/**
 * The port between JSON-RPC (peer.ts) and the transports. A channel moves whole frames and tracks how far each came; it does not know
 * answers, deadlines or policy.
 *
 * Invariants every channel keeps (test/contract checks them):
 * - `send` never throws. What it refuses, it refuses at once, and then not one byte was or will be written.
 * - A frame's `phase` only moves forward, and is still `queued` if and only if no byte of it was handed to the system.
 * - After `closed` is reported, which happens exactly once, nothing else is reported.
 */
import type { HostError, SendPhase } from '../kernel/errors.js';
import type { Envelope } from './envelope.js';

/** Header values of HTTP (`Mcp-Name`, `Mcp-Param-*`). Other transports ignore them. */
export interface HttpFacts {
  readonly name?: string;
  /** Header name without the `Mcp-Param-` prefix, and its plain value; the transport encodes it. */
  readonly params?: ReadonlyArray<readonly [name: string, value: string]>;
  /** The request opens a connection in this era: it is sent by these rules, outside any session. */
  readonly opens?: EraRules;
}

export interface OutboundFrame {
  readonly kind: 'request' | 'notification' | 'response';
  /** Our id, for requests. */
  readonly id: number | undefined;
  /** For requests and notifications. */
  readonly method: string | undefined;
  /** The message is `head` + `payload` + `tail`, without a newline, so that relayed bytes are never copied into a string. */
  readonly head: string;
  readonly payload: string | Uint8Array;
  readonly tail: string;
  /** Bytes of the message and a line end. */
  readonly bytes: number;
  readonly http: HttpFacts | undefined;
  /** How many frames may leave together; a channel that writes in batches waits for no more. */
  batch: number;
  phase: SendPhase;
}

/**
 * The request of ours that caused a message, as the channel knows it: the frame in whose response stream the message came (HTTP),
 * or the id that was named with it (`relatedRequestId`). The request may have ended; ids are never used twice.
 */
export type MessageOrigin = Pick<OutboundFrame, 'id'> | number;

/** Undefined: there is no origin, or the frame is no request. */
export const originId = (origin: MessageOrigin | undefined): number | undefined =>
  typeof origin === 'object' ? origin.id : origin;

/** The name of a protocol era, such as `modern`. The eras are listed in session/eras/eras.ts and gateway/eras/eras.ts. */
export type Era = string;

/** Where eras differ below the session: in the peer and in the channels. */
export interface EraRules {
  readonly name: Era;
  /** The server may send requests of its own. */
  readonly hasServerRequests: boolean;
  /** The server may end one of our requests with `notifications/cancelled`. */
  readonly hasServerCancel: boolean;
  /** HTTP: closing the response cancels the request. Otherwise `notifications/cancelled` does. */
  readonly closeCancels: boolean;
  /** HTTP: there is a session with an id, a standalone GET stream, and event streams that can be resumed. */
  readonly hasHttpSession: boolean;
  /** HTTP: headers repeat the method, the name and annotated arguments of each request. */
  readonly mirrorsRequests: boolean;
  /** HTTP: the version in the header of a request that opens a connection; undefined: no header. */
  readonly openingVersion: string | undefined;
}

/** The agreed protocol revision. */
export interface Agreement {
  readonly era: EraRules;
  readonly version: string;
}

export interface ChannelListener {
  /**
   * One message arrived. The envelope is reused for the next message: read it now.
   * `origin` proves that the request caused the message; only channels that know it pass one.
   */
  message(envelope: Envelope, origin: MessageOrigin | undefined): void;
  /** Queued frames are about to be written: the last chance to withdraw expired ones unsent. */
  beforeWrite?(): void;
  /** This one request will get no answer; the channel stays open. */
  failed(frame: OutboundFrame, error: HostError): void;
  /**
   * The answer to the request with this id is too large to be read, which ends the connection: `closed` follows. The other requests
   * in flight are lost with the connection.
   */
  tooLarge?(id: number, error: HostError): void;
  /** Legacy HTTP: the server refused the stream on which it speaks unasked. It may not know our session any more. */
  sessionDoubted?(): void;
  /**
   * HTTP: requests wait unsent, and for 10 s there was no traffic. Called again after another 10 s; `activity` is the same number if
   * there was no traffic in between.
   */
  stalled?(activity: number): void;
  /** The channel is closed. The peer fails its open requests, each by its own phase. */
  closed(error: HostError): void;
}

/** How a request that is given up was withdrawn. */
export type Withdrawal =
  /** It had not been written; the server will never see it. */
  | 'unsent'
  /** Ending the exchange notified the server (HTTP, where the era says so). */
  | 'aborted'
  /** The server needs `notifications/cancelled`. */
  | 'notify';

/** Requests wait in the channel until exactly one of these is called. */
export interface SessionReset {
  /** A new session is open: the requests are sent in it. */
  opened(): void;
  /** No session could be opened: each request fails with this error, in this tick. */
  failed(error: HostError): void;
}

export interface Channel {
  readonly kind: 'stdio' | 'streamable-http' | 'http-sse' | 'memory' | 'attached';
  /** Called once, before anything else. */
  start(listener: ChannelListener): void;
  /** Accepts the frame and returns undefined, or refuses it and returns the error. */
  send(frame: OutboundFrame): HostError | undefined;
  withdraw(frame: OutboundFrame): Withdrawal;
  adopt(agreement: Agreement): void;
  /** Legacy HTTP: starts the stream on which the server speaks unasked. Other channels always hear it. */
  openServerStream?(): void;
  /** Legacy HTTP: forgets the session the server no longer knows, before a new `initialize`. */
  resetSession?(): SessionReset;
  /** Closes the channel and resolves when all its resources are released. Safe to call again. */
  close(): Promise<void>;
  /** Whether `OutboundFrame.http` is sent as headers where the era mirrors requests. Streamable HTTP always sends it. */
  readonly mirrorsHeaders?: boolean;
  /** Why no more frames are accepted, while sent requests may still be answered. */
  readonly endedBy?: HostError | undefined;
  /** Counts of unusable input. */
  readonly counters: ChannelCounters;
}

export interface ChannelCounters {
  /** Lines or bodies that are not JSON-RPC. */
  junk: number;
  /** Messages with invalid UTF-8, delivered with replacement characters. */
  repaired: number;
  /** Messages refused because their top level is ambiguous (duplicate or case-varied keys, both result and error). */
  ambiguous: number;
}

export const newCounters = (): ChannelCounters => ({ junk: 0, repaired: 0, ambiguous: 0 });

/** The message as one string, for transports that do not stream. */
export function frameText(frame: OutboundFrame): string {
  const payload = typeof frame.payload === 'string' ? frame.payload : asBuffer(frame.payload).toString('utf8');
  return frame.head + payload + frame.tail;
}

export function frameBytes(frame: OutboundFrame): Buffer {
  if (typeof frame.payload === 'string') return Buffer.from(frame.head + frame.payload + frame.tail);
  return Buffer.concat([Buffer.from(frame.head), frame.payload, Buffer.from(frame.tail)]);
}

const asBuffer = (bytes: Uint8Array): Buffer => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
