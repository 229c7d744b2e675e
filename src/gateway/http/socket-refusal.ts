/**
 * Ends a connection on which no request could be read, with the reason where it can still be heard.
 * Not here: how its end waits for a client that still writes (lingering-close.ts).
 */
import { STATUS_CODES } from 'node:http';
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { joinedParts, partsBytes } from '../../wire/json-text.js';
import { failureText } from '../messages/rpc-text.js';
import type { LingeringClose } from './lingering-close.js';
import { REFUSALS } from './refusals.js';

export function refuseSocket(code: string | undefined, socket: Duplex, lingering: LingeringClose): void {
  if (!(socket instanceof Socket)) {
    socket.destroy();
    return;
  }
  // It has its answer; that it ends in the middle of a request is no news.
  if (lingering.has(socket)) return;
  // After the first bytes of an answer, more would be taken for its end.
  const canBeHeard = socket.writable && socket.bytesWritten === 0;
  if (!canBeHeard || code === 'ECONNRESET') {
    socket.destroy();
    return;
  }
  const { status, failure } =
    code === 'HPE_HEADER_OVERFLOW'
      ? REFUSALS.header
      : code === 'ERR_HTTP_REQUEST_TIMEOUT'
        ? REFUSALS.slow
        : REFUSALS.http;
  const parts = failureText(undefined, failure);
  const bytes = partsBytes(parts);
  const head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nContent-Type: application/json\r\nContent-Length: ${bytes}\r\nConnection: close\r\n\r\n`;
  lingering.end(socket, joinedParts([head, ...parts], head.length + bytes));
}
