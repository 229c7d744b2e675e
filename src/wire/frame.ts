/** Builds outbound frames. The payload is JSON text or bytes and is never parsed. */
import type { HttpFacts, OutboundFrame } from './channel.js';

/** JSON text, or its UTF-8 bytes. The caller guarantees that it is valid JSON. */
export type JsonText = string | Uint8Array;

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
