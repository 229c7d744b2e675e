/**
 * Writes answers that are one JSON text: the head once with its length, the text in one piece or as few as can be.
 * Not here: event streams (sse-stream.ts).
 */
import type { ServerResponse } from 'node:http';
import type { JsonText } from '../../wire/frame.js';
import { joinedParts, latin1, partsBytes } from '../../wire/json-text.js';
import type { RpcFailure } from '../exchange.js';
import { failureText } from '../messages/rpc-text.js';

/** Alternating names and values. */
export type HeaderList = readonly string[];

/** Below it, copying the parts together is cheaper than one write for each. */
const joinedBytesMax = 64 * 1024;

/**
 * The parts as one text of Latin-1, a letter for each byte: written as such it is the same bytes, and Node sends a text together
 * with its head in one piece, where a buffer goes after it in a second.
 */
export function joinedLatin1(parts: readonly JsonText[]): string {
  let text = '';
  for (const part of parts) text += typeof part === 'string' ? latin1(part) : bytesOf(part).toString('latin1');
  return text;
}

const bytesOf = (bytes: Uint8Array): Buffer =>
  bytes instanceof Buffer ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);

export function writeJson(
  response: ServerResponse,
  status: number,
  parts: readonly JsonText[],
  stallMs: number,
  headers: HeaderList = [],
): void {
  if (response.destroyed || response.headersSent) return;
  let atLeast = 0;
  for (const part of parts) atLeast += part.length;
  if (atLeast <= joinedBytesMax) {
    const text = joinedLatin1(parts);
    writeHead(response, status, text.length, headers);
    response.end(text, 'latin1');
  } else {
    writeHead(response, status, partsBytes(parts), headers);
    response.cork();
    for (const part of parts) response.write(part);
    response.uncork();
    response.end();
  }
  cutWhenStalled(response, stallMs);
}

function writeHead(response: ServerResponse, status: number, bytes: number, headers: HeaderList): void {
  const head = ['Content-Type', 'application/json', 'Content-Length', String(bytes)];
  response.writeHead(status, headers.length === 0 ? head : [...head, ...headers]);
}

/** The socket's own timer counts from its last progress and runs only while something waits; a reader in time never sees it. */
export function cutWhenStalled(response: ServerResponse, stallMs: number): void {
  if (response.socket?.writableNeedDrain) response.socket.setTimeout(stallMs);
}

/** Refuses a request outside of JSON-RPC; `idText` is the id of its message, where that could be read. */
export function refuse(
  response: ServerResponse,
  status: number,
  failure: RpcFailure,
  headers: HeaderList = [],
  idText?: string,
): void {
  if (response.destroyed || response.headersSent) return;
  const parts = failureText(idText, failure);
  const bytes = partsBytes(parts);
  writeHead(response, status, bytes, headers);
  response.end(joinedParts(parts, bytes));
}
