/**
 * Reads a child's output so that no amount of it keeps others waiting: after each full buffer everybody else gets a
 * turn. Left alone, the loop reads two megabytes of one pipe before it looks at the next.
 * Not here: what the bytes mean.
 */
import { Socket } from 'node:net';
import type { Readable } from 'node:stream';

/** What the system is asked for in one read. A read that fills it means there is more. */
const readBytes = 64 * 1024;

/** Each chunk is the receiver's to keep. */
export function readFairly(stream: Readable, onChunk: (chunk: Buffer) => void): void {
  stream.on('data', (chunk: Buffer) => {
    onChunk(chunk);
    if (chunk.length >= readBytes) rest(stream);
  });
}

/** One for all: bytes are taken out of it before anything else is read. */
let scratch: Buffer | undefined;

/**
 * As `readFairly`, but the bytes are only lent for the time of the call, so that a flood makes no garbage: with one
 * buffer per read, a server that fills its stderr costs some 35 MiB of buffers waiting to be collected, this way none.
 * Node offers this (`onread`) only for sockets it is asked to make, so the pipe's handle is moved to such a socket.
 * Returns the stream to wait for and to destroy, which is the old one wherever the handle cannot be had.
 */
export function readLent(stream: Readable, onBytes: (bytes: Buffer) => void): Readable {
  const owner = stream as Readable & { _handle?: { useUserBuffer?: unknown } | null };
  const handle = owner._handle;
  if (typeof handle?.useUserBuffer !== 'function') {
    readFairly(stream, onBytes);
    return stream;
  }
  owner._handle = null;
  scratch ??= Buffer.allocUnsafeSlow(readBytes);
  const options = {
    handle,
    readable: true,
    writable: false,
    onread: {
      buffer: scratch,
      callback(length: number, bytes: Uint8Array): boolean {
        onBytes((bytes as Buffer).subarray(0, length));
        if (length < readBytes) return true;
        rest(socket);
        return false;
      },
    },
  };
  const socket = new Socket(options);
  socket.on('error', () => {});
  socket.resume();
  return socket;
}

function rest(stream: Readable): void {
  stream.pause();
  setImmediate(() => {
    if (!stream.destroyed) stream.resume();
  });
}
