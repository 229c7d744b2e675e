/** Ends a connection on which no request could be read, with the reason where it can still be heard. */
import { STATUS_CODES } from 'node:http';
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { failureText } from '../messages/rpc-text.js';
import { REFUSALS } from './refusals.js';
import { joined, textBytes } from './reply.js';

export function refuseSocket(code: string | undefined, socket: Duplex): void {
  // After the first bytes of an answer, more would be taken for its end.
  const canBeHeard = socket.writable && !(socket instanceof Socket && socket.bytesWritten > 0);
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
  const parts = failureText('null', failure);
  const bytes = textBytes(parts);
  const head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nContent-Type: application/json\r\nContent-Length: ${bytes}\r\nConnection: close\r\n\r\n`;
  socket.end(joined([head, ...parts], head.length + bytes), () => socket.destroy());
}
