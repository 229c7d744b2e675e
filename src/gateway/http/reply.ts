/**
 * Writes answers that are one JSON text, and refusals. A small answer and its head are sent in one write.
 * Not here: event streams (sse-stream.ts), the texts of refusals (refusals.ts).
 */
import { type IncomingMessage, ServerResponse, STATUS_CODES } from 'node:http';
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { JsonText } from '../../wire/channel.js';
import { joinedParts, latin1, partsBytes } from '../../wire/json-edit.js';
import { failureText } from '../exchange.js';
import type { LingeringClose } from './http-connections.js';
import { type HeaderList, isTooMuchToDrain, REFUSALS, type Refusal, type RequestHeaders } from './refusals.js';

/** Up to this size, joining the parts is cheaper than one write per part. */
const joinedBytesMax = 64 * 1024;

/** One Latin-1 character per byte: Node sends a string together with the head, but a buffer in a second write. */
function joinedLatin1(parts: readonly JsonText[]): string {
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

/** Disconnects a client that stops reading. The socket timer restarts with each progress, so a slow reader is not cut off. */
export function cutWhenStalled(response: ServerResponse, stallMs: number): void {
  if (response.socket?.writableNeedDrain) response.socket.setTimeout(stallMs);
}

function refuse(response: ServerResponse, { status, failure, idText }: Refusal, headers: HeaderList): void {
  if (response.destroyed || response.headersSent) return;
  const parts = failureText(idText, failure);
  const bytes = partsBytes(parts);
  writeHead(response, status, bytes, headers);
  response.end(joinedParts(parts, bytes));
}

/** Refuses a request, and closes its connection if too much of the body is still to be read. */
export function refuseRequest(
  lingering: LingeringClose,
  refusal: Refusal,
  request: IncomingMessage,
  received: RequestHeaders,
  response: ServerResponse,
): void {
  const { headers } = refusal;
  const closes = headers.includes('Connection');
  const mustClose = !request.complete && (closes || isTooMuchToDrain(received));
  if (mustClose) lingering.insteadOfCut(request);
  refuse(response, refusal, mustClose && !closes ? [...headers, 'Connection', 'close'] : headers);
}

export function failRequest(
  { onProblem }: { readonly onProblem: (error: unknown) => void },
  response: ServerResponse,
  error: unknown,
): void {
  onProblem(error);
  refuse(response, REFUSALS.internal, REFUSALS.internal.headers);
}

/** Closes a connection after a parse error or timeout, with an answer if no bytes were sent before. */
export function refuseSocket(code: string | undefined, socket: Duplex, lingering: LingeringClose): void {
  if (!(socket instanceof Socket)) {
    socket.destroy();
    return;
  }
  // The connection already has its answer.
  if (lingering.has(socket)) return;
  // After the first bytes of another answer, the client would read these bytes as its continuation.
  const isReadable = socket.writable && socket.bytesWritten === 0;
  if (!isReadable || code === 'ECONNRESET') {
    socket.destroy();
    return;
  }
  const { status, failure } = SOCKET_REFUSALS[code ?? ''] ?? REFUSALS.http;
  const parts = failureText(undefined, failure);
  const bytes = partsBytes(parts);
  const head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nContent-Type: application/json\r\nContent-Length: ${bytes}\r\nConnection: close\r\n\r\n`;
  lingering.end(socket, joinedParts([head, ...parts], head.length + bytes));
}

const SOCKET_REFUSALS: Readonly<Record<string, Refusal>> = {
  HPE_HEADER_OVERFLOW: REFUSALS.header,
  ERR_HTTP_REQUEST_TIMEOUT: REFUSALS.slow,
};

/** Counts answers in `counts` by the first digit of their status. */
export function countedResponse(counts: Record<number, number>): typeof ServerResponse {
  class CountedResponse extends ServerResponse {
    override writeHead(status: number, ...rest: unknown[]): this {
      const digit = Math.trunc(status / 100);
      counts[digit] = (counts[digit] ?? 0) + 1;
      return super.writeHead(status, ...(rest as [string[]]));
    }
  }
  return CountedResponse as typeof ServerResponse;
}
