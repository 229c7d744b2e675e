/**
 * A second socket in the data directory, on which the running Hostler serves clients as it does over stdin and stdout: so that
 * each client may start `hostler up --stdio`, and all of them share one.
 * Not here: serving (gateway/stdio), who owns the data directory (control/control-server.ts).
 *
 * Invariants: for its own user alone, who is the operator; opened only by whoever has the data directory, so that what lies
 * there before is left over and may be taken away; the end of one direction is not the end of the other.
 */
import { rmSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import path from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { listenPrivately } from './private-socket.js';

const connectionsMax = 64;

export const stdioPath = (dataDir: string): string => path.join(path.resolve(dataDir), 'stdio.sock');

export interface StdioSocket {
  /** Takes nobody on any more; who is there is served. */
  stop(): void;
  close(): Promise<void>;
}

/** `serve` resolves when the client is done with. */
export async function openStdioSocket(file: string, serve: (socket: Socket) => Promise<void>): Promise<StdioSocket> {
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => socket.destroy());
    if (sockets.size >= connectionsMax) return void socket.destroy();
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    serve(socket).then(
      () => socket.end(),
      () => socket.destroy(),
    );
  });
  const close = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve());
      for (const socket of sockets) socket.destroySoon();
    });
  rmSync(file, { force: true });
  const inTheWay = await listenPrivately(server, file);
  if (inTheWay) throw inTheWay;
  return { stop: () => void server.close(), close };
}

/** Hands a client on to the running Hostler, until both are done. False: nobody answers there. */
export function relayStdio(file: string, input: Readable, output: Writable, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ path: file, allowHalfOpen: true });
    let isConnected = false;
    const stop = () => {
      input.unpipe(socket);
      // A pipe that is not read from keeps no process alive.
      input.pause();
      socket.end();
    };
    const gone = () => socket.destroy();
    socket.once('connect', () => {
      isConnected = true;
      // Whoever reads us is gone.
      output.on('error', gone);
      input.pipe(socket);
      socket.pipe(output, { end: false });
      if (signal.aborted) stop();
      else signal.addEventListener('abort', stop, { once: true });
    });
    socket.on('error', gone);
    socket.once('end', stop);
    socket.once('close', () => {
      signal.removeEventListener('abort', stop);
      output.off('error', gone);
      if (isConnected) stop();
      resolve(isConnected);
    });
  });
}
