/**
 * Writes answers that are one JSON text: the head once with its length, the text in one piece or as few as can be.
 * Not here: event streams (sse-stream.ts).
 */
import type { ServerResponse } from 'node:http';
import type { JsonText } from '../../wire/frame.js';
import type { RpcFailure } from '../exchange.js';
import { failureText } from '../messages/rpc-text.js';

/** Alternating names and values. */
export type HeaderList = readonly string[];

/** Below it, copying the parts together is cheaper than one write for each. */
const joinedBytesMax = 64 * 1024;

export function textBytes(parts: readonly JsonText[]): number {
  let bytes = 0;
  for (const part of parts) bytes += typeof part === 'string' ? Buffer.byteLength(part) : part.byteLength;
  return bytes;
}

/** The parts as one text, in a buffer of exactly `bytes`. */
export function joined(parts: readonly JsonText[], bytes: number): Buffer {
  const text = Buffer.allocUnsafe(bytes);
  let at = 0;
  for (const part of parts) {
    if (typeof part === 'string') at += text.write(part, at);
    else {
      text.set(part, at);
      at += part.byteLength;
    }
  }
  return text;
}

export function writeJson(
  response: ServerResponse,
  status: number,
  parts: readonly JsonText[],
  stallMs: number,
  headers: HeaderList = [],
): void {
  if (response.destroyed || response.headersSent) return;
  const bytes = textBytes(parts);
  response.writeHead(status, ['Content-Type', 'application/json', 'Content-Length', String(bytes), ...headers]);
  if (bytes <= joinedBytesMax) response.end(joined(parts, bytes));
  else {
    response.cork();
    for (const part of parts) response.write(part);
    response.uncork();
    response.end();
  }
  cutWhenStalled(response, stallMs);
}

/** The socket's own timer counts from its last progress and runs only while something waits; a reader in time never sees it. */
export function cutWhenStalled(response: ServerResponse, stallMs: number): void {
  if (response.socket?.writableNeedDrain) response.socket.setTimeout(stallMs);
}

/** For requests that are refused before they are anything of JSON-RPC's; the message says what to do. */
export function refuse(response: ServerResponse, status: number, failure: RpcFailure, headers: HeaderList = []): void {
  if (response.destroyed || response.headersSent) return;
  const parts = failureText('null', failure);
  const bytes = textBytes(parts);
  response.writeHead(status, ['Content-Type', 'application/json', 'Content-Length', String(bytes), ...headers]);
  response.end(joined(parts, bytes));
}
