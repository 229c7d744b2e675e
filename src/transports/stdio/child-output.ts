/**
 * Reads the output of a child without delaying other work: after each full buffer the rest of the event loop runs. Node alone
 * reads two megabytes from one pipe before it reads the next.
 * After the child exits, `drain` waits for the output that is left in its pipes.
 */
import { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import type { Clock } from '../../kernel/clock.js';

/** Size of one read. A full buffer means that the pipe has more. */
const readBytes = 64 * 1024;

export const stdoutDrainMs = 200;
const stderrDrainMs = 20;

/** Passes each chunk in a new buffer, so `onChunk` may store it. */
export function readFairly(stream: Readable, onChunk: (chunk: Buffer) => void): void {
  stream.on('data', (chunk: Buffer) => {
    onChunk(chunk);
    if (chunk.length >= readBytes) pauseForOneTick(stream);
  });
}

/** All streams share one buffer, because its bytes are processed before the next read. */
let sharedBuffer: Buffer | undefined;

/**
 * Like `readFairly`, but the bytes are valid only during the callback. One buffer per read would make about 35 MiB of garbage
 * while a server floods stderr; the shared buffer makes none.
 * Node supports a shared buffer (`onread`) only for sockets created with that option, so the handle of the pipe is moved to
 * such a socket. Returns the stream to wait for and to destroy. This is `stream` itself if the handle cannot be moved.
 */
export function readIntoSharedBuffer(stream: Readable, onBytes: (bytes: Buffer) => void): Readable {
  const owner = stream as Readable & { _handle?: { useUserBuffer?: unknown } | null };
  const handle = owner._handle;
  if (typeof handle?.useUserBuffer !== 'function') {
    readFairly(stream, onBytes);
    return stream;
  }
  owner._handle = null;
  sharedBuffer ??= Buffer.allocUnsafeSlow(readBytes);
  const options = {
    handle,
    readable: true,
    writable: false,
    onread: {
      buffer: sharedBuffer,
      callback(length: number, bytes: Uint8Array): boolean {
        onBytes((bytes as Buffer).subarray(0, length));
        if (length < readBytes) return true;
        pauseForOneTick(socket);
        return false;
      },
    },
  };
  const socket = new Socket(options);
  socket.on('error', () => {});
  socket.resume();
  return socket;
}

function pauseForOneTick(stream: Readable): void {
  stream.pause();
  setImmediate(() => {
    if (!stream.destroyed) stream.resume();
  });
}

/**
 * Waits for the output in the pipes of a dead child, at most `stdoutDrainMs`, because another process may have the pipes open.
 * After stdout ends, stderr gets up to `stderrDrainMs` more, within the same limit. Calls `done` once.
 */
export function drain(clock: Clock, stdout: Readable, stderr: Readable, done: () => void): void {
  const untilMs = clock.nowMs() + stdoutDrainMs;
  whenEnded(clock, stdout, untilMs, () => {
    whenEnded(clock, stderr, Math.min(untilMs, clock.nowMs() + stderrDrainMs), done);
  });
}

export function whenEnded(clock: Clock, stream: Readable, untilMs: number, done: () => void): void {
  if (stream.readableEnded || stream.destroyed) return done();
  const finish = () => {
    cancel();
    stream.off('end', finish);
    stream.off('close', finish);
    done();
  };
  const cancel = clock.at(untilMs, finish);
  stream.once('end', finish);
  stream.once('close', finish);
}
