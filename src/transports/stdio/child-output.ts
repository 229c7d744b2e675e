/**
 * Reads a child's output so that a flood of it does not delay other work: after each full buffer the rest of the event loop runs.
 * By itself, Node reads two megabytes from one pipe before it looks at the next. Waits for the rest of it when the child is dead.
 * Not here: the meaning of the bytes.
 */
import { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import type { Clock } from '../../kernel/clock.js';

/** Size of one read. A read that fills it means there is more. */
const readBytes = 64 * 1024;

export const stdoutDrainMs = 200;
const stderrDrainMs = 20;

/** The receiver may keep each chunk. */
export function readFairly(stream: Readable, onChunk: (chunk: Buffer) => void): void {
  stream.on('data', (chunk: Buffer) => {
    onChunk(chunk);
    if (chunk.length >= readBytes) pauseForOneTick(stream);
  });
}

/** One for all streams: its bytes are processed before the next read. */
let sharedBuffer: Buffer | undefined;

/**
 * As `readFairly`, but the bytes are valid only during the call. With one buffer per read, a server that floods stderr costs some
 * 35 MiB of garbage; this way none. Node offers it (`onread`) only for sockets that it creates with that option, so the pipe's
 * handle moves to such a socket.
 * Returns the stream to wait for and to destroy: the old one where the handle cannot be moved.
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
 * Waits for what a dead child left in its pipes, at most `stdoutDrainMs`: another process may keep them open. stderr gets a moment
 * more than stdout, because its last line explains the exit. Calls `done` once.
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
