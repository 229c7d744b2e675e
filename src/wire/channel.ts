/**
 * The port between JSON-RPC (peer.ts) and the transports. A channel moves whole frames and tracks the phase of each; it does
 * not know answers, deadlines or policy.
 * Invariants of every channel (checked in test/contract):
 * - `send` never throws. A frame that it refuses is never written, not even partly.
 * - The `phase` of a frame only moves forward. It is `queued` if and only if no byte was passed to the system.
 * - `closed` is reported exactly once, and nothing is reported after it.
 */

import type { HostError, SendPhase } from '../kernel/errors.js';
import type { ChannelCounters, Envelope } from './envelope.js';

/** HTTP header values (`Mcp-Name`, `Mcp-Param-*`). Other transports ignore them. */
export interface HttpFacts {
  readonly name?: string;
  /** Header name without the `Mcp-Param-` prefix, and its plain value. The transport encodes the value. */
  readonly params?: ReadonlyArray<readonly [name: string, value: string]>;
  /** The request opens a connection in this era: it is sent by these rules, outside any session. */
  readonly opens?: EraRules;
}

export interface OutboundFrame {
  readonly kind: 'request' | 'notification' | 'response';
  readonly id: number | undefined;
  readonly method: string | undefined;
  /** The message is `head` + `payload` + `tail` without a newline, so that relayed bytes are never copied into a string. */
  readonly head: string;
  readonly payload: string | Uint8Array;
  readonly tail: string;
  /** Bytes of the message and a line end. */
  readonly bytes: number;
  readonly http: HttpFacts | undefined;
  /** Number of frames to write together. A channel that writes in batches does not wait for more. */
  batch: number;
  phase: SendPhase;
}

/**
 * The request that caused a message, if the channel knows it: the frame whose response stream carried the message (HTTP), or
 * the id named with it (`relatedRequestId`). The request may have ended; ids are never reused.
 */
export type MessageOrigin = Pick<OutboundFrame, 'id'> | number;

/** Undefined: the message has no origin, or the frame is not a request. */
export const originId = (origin: MessageOrigin | undefined): number | undefined =>
  typeof origin === 'object' ? origin.id : origin;

/** Name of a protocol era, such as `modern`. session/eras/eras.ts and gateway/eras/eras.ts list the eras. */
export type Era = string;

export interface EraRules {
  readonly name: Era;
  readonly hasServerRequests: boolean;
  /** The server may end a request of the peer with `notifications/cancelled`. */
  readonly hasServerCancel: boolean;
  /** HTTP: closing the response cancels the request. Otherwise `notifications/cancelled` cancels it. */
  readonly closeCancels: boolean;
  /** HTTP: the era has sessions with an id, a standalone GET stream, and event streams that can be resumed. */
  readonly hasHttpSession: boolean;
  /** HTTP: headers repeat the method, the name and annotated arguments of each request. */
  readonly mirrorsRequests: boolean;
  /** HTTP: version in the header of a request that opens a connection. Undefined: no header. */
  readonly openingVersion: string | undefined;
}

export interface Agreement {
  readonly era: EraRules;
  readonly version: string;
}

export interface ChannelListener {
  /**
   * The envelope is reused for the next message, so it must be read at once. `origin` proves that the request caused the
   * message; only channels that know the origin pass one.
   */
  message(envelope: Envelope, origin: MessageOrigin | undefined): void;
  /** Queued frames are about to be written. This is the last chance to withdraw expired ones unsent. */
  beforeWrite?(): void;
  /** This request will get no answer; the channel stays open. */
  failed(frame: OutboundFrame, error: HostError): void;
  /** The answer to this request is too large to be read. `closed` follows, and the other requests in flight are lost. */
  tooLarge?(id: number, error: HostError): void;
  /** Legacy HTTP: the server refused the standalone stream. It may have lost the session. */
  sessionMaybeLost?(): void;
  /**
   * HTTP: requests wait unsent, and 10 s passed without traffic. Called again after another 10 s, with the same `activity` if
   * there was still no traffic.
   */
  stalled?(activity: number): void;
  /** The peer fails its open requests, each by its phase. */
  closed(error: HostError): void;
}

export type Withdrawal =
  /** The request had not been written; the server will never see it. */
  | 'unsent'
  /** Closing the exchange notified the server (HTTP, in eras with `closeCancels`). */
  | 'aborted'
  /** The server needs `notifications/cancelled`. */
  | 'notify';

/** Requests wait in the channel until exactly one of these is called. */
export interface SessionReset {
  opened(): void;
  /** No session could be opened: each request fails with this error, in this tick. */
  failed(error: HostError): void;
}

export interface Channel {
  readonly kind: 'stdio' | 'streamable-http' | 'http-sse' | 'memory' | 'attached';
  /** Must be called once, before any other method. */
  start(listener: ChannelListener): void;
  send(frame: OutboundFrame): HostError | undefined;
  withdraw(frame: OutboundFrame): Withdrawal;
  adopt(agreement: Agreement): void;
  /** Legacy HTTP: opens the standalone stream of the server. Other channels need none. */
  openServerStream?(): void;
  /** Legacy HTTP: drops a session that the server has lost, before a new `initialize`. */
  resetSession?(): SessionReset;
  /** Resolves when all resources are released. May be called again. */
  close(): Promise<void>;
  /** Whether `OutboundFrame.http` is sent as headers if the era mirrors requests. Streamable HTTP always sends it. */
  readonly mirrorsHeaders?: boolean;
  /** Why no more frames are accepted. Sent requests may still be answered. */
  readonly endedBy?: HostError | undefined;
  readonly counters: ChannelCounters;
}

export function frameText(frame: OutboundFrame): string {
  const payload = typeof frame.payload === 'string' ? frame.payload : asBuffer(frame.payload).toString('utf8');
  return frame.head + payload + frame.tail;
}

export function frameBytes(frame: OutboundFrame): Buffer {
  if (typeof frame.payload === 'string') return Buffer.from(frame.head + frame.payload + frame.tail);
  return Buffer.concat([Buffer.from(frame.head), frame.payload, Buffer.from(frame.tail)]);
}

const asBuffer = (bytes: Uint8Array): Buffer => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** JSON text, or its UTF-8 bytes. The caller guarantees that it is valid JSON. */
export type JsonText = string | Uint8Array;

/** Returns a string with one character per byte of the UTF-8 text. ASCII text is unchanged. */
export const latin1 = (text: string): string => (isAscii.test(text) ? text : Buffer.from(text).toString('latin1'));
const isAscii = /^[\x00-\x7f]*$/;

export function requestFrame(
  id: number,
  method: string,
  params: JsonText | undefined,
  http: HttpFacts | undefined,
): OutboundFrame {
  const start = `{"jsonrpc":"2.0","id":${id},"method":${quote(method)}`;
  return build('request', id, method, params === undefined ? start : `${start},"params":`, params ?? '', http);
}

export function notificationFrame(method: string, params: JsonText | undefined): OutboundFrame {
  const start = `{"jsonrpc":"2.0","method":${quote(method)}`;
  return build('notification', undefined, method, params === undefined ? start : `${start},"params":`, params ?? '');
}

/** `idText` is the id exactly as the server wrote it, so that a 64-bit or string id is unchanged. */
export function responseFrame(idText: string, member: 'result' | 'error', payload: JsonText): OutboundFrame {
  return build('response', undefined, undefined, `{"jsonrpc":"2.0","id":${idText},"${member}":`, payload);
}

function build(
  kind: OutboundFrame['kind'],
  id: number | undefined,
  method: string | undefined,
  head: string,
  payload: JsonText,
  http?: HttpFacts,
): OutboundFrame {
  const size = typeof payload === 'string' ? Buffer.byteLength(payload) : payload.byteLength;
  // Two more bytes: the closing brace and the line end.
  const bytes = Buffer.byteLength(head) + size + 2;
  return { kind, id, method, head, payload, tail: '}', bytes, http, batch: 1, phase: 'queued' };
}

const quotedMethods = new Map<string, string>();
/** Bounds the memory if callers invent method names. */
const quotedMethodsMax = 256;

function quote(method: string): string {
  let quoted = quotedMethods.get(method);
  if (quoted === undefined) {
    quoted = JSON.stringify(method);
    if (quotedMethods.size < quotedMethodsMax) quotedMethods.set(method, quoted);
  }
  return quoted;
}
