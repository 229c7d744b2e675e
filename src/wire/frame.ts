/**
 * Builds the frames we send. The payload is taken as JSON text or bytes and never parsed.
 */
import type { HttpFacts, OutboundFrame } from './channel.js';

/** JSON text, or its UTF-8 bytes. Whoever hands it over answers for it being JSON without raw newlines. */
export type JsonText = string | Uint8Array;

export function requestFrame(
  id: number,
  method: string,
  params: JsonText | undefined,
  http: HttpFacts | undefined,
): OutboundFrame {
  const start = `{"jsonrpc":"2.0","id":${id},"method":${quote(method)}`;
  return params === undefined
    ? { kind: 'request', id, method, head: start, payload: '', tail: '}', http, phase: 'queued' }
    : { kind: 'request', id, method, head: `${start},"params":`, payload: params, tail: '}', http, phase: 'queued' };
}

export function notificationFrame(method: string, params: JsonText | undefined): OutboundFrame {
  const start = `{"jsonrpc":"2.0","method":${quote(method)}`;
  const head = params === undefined ? start : `${start},"params":`;
  return {
    kind: 'notification',
    id: undefined,
    method,
    head,
    payload: params ?? '',
    tail: '}',
    http: undefined,
    phase: 'queued',
  };
}

/** `idText` is the id exactly as the server wrote it, so that a 64-bit or string id goes back to the digit. */
export function responseFrame(idText: string, member: 'result' | 'error', payload: JsonText): OutboundFrame {
  const head = `{"jsonrpc":"2.0","id":${idText},"${member}":`;
  return {
    kind: 'response',
    id: undefined,
    method: undefined,
    head,
    payload,
    tail: '}',
    http: undefined,
    phase: 'queued',
  };
}

const quotedMethods = new Map<string, string>();
/** Method names are few and known; the bound keeps a caller that invents them from filling memory. */
const quotedMethodsMax = 256;

function quote(method: string): string {
  let quoted = quotedMethods.get(method);
  if (quoted === undefined) {
    quoted = JSON.stringify(method);
    if (quotedMethods.size < quotedMethodsMax) quotedMethods.set(method, quoted);
  }
  return quoted;
}
