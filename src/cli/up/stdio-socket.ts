/**
 * A second socket in the data directory, on which the running Hostler serves clients as over stdin and stdout. Each client may
 * start `hostler up --stdio`, and all of them share one Hostler.
 * Not here: serving (gateway/stdio), ownership of the data directory (control/control-server.ts).
 * Invariants: only the same user can open the socket. Only the owner of the data directory creates it, so an existing socket is
 * stale and is removed. The end of one direction does not end the other.
 */
import { rmSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import path from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { type Clock, sleep } from '../../kernel/clock.js';
import { realPath } from '../config/find-config.js';
import { fetchRunningFacts } from '../control/control-client.js';
import { controlPath, type RunningFacts } from '../control/control-protocol.js';
import { listenPrivately } from '../control/control-server.js';
import type { UpOptions } from './up-options.js';

const connectionsMax = 64;

export const stdioPath = (dataDir: string): string => path.join(path.resolve(dataDir), 'stdio.sock');

export interface StdioSocket {
  /** Accepts no more clients. Connected clients are still served. */
  stop(): void;
  close(): Promise<void>;
}

/** `serve` resolves when the client disconnects. */
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
  const error = await listenPrivately(server, file);
  if (error) throw error;
  return { stop: () => void server.close(), close };
}

/** Pipes a client to the running Hostler until both directions end. Resolves with false if it cannot connect. */
export function relayStdio(file: string, input: Readable, output: Writable, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ path: file, allowHalfOpen: true });
    let isConnected = false;
    const stop = () => {
      input.unpipe(socket);
      // A paused pipe does not keep the process alive.
      input.pause();
      socket.end();
    };
    const gone = () => socket.destroy();
    socket.once('connect', () => {
      isConnected = true;
      // This error means that the reader of the output has exited.
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

/** A starting Hostler opens its control socket before it serves. Clients retry for ten seconds. */
const tryEveryMs = 100;
const triesMax = 100;
const aliveMs = 60_000;

/** Facts of the Hostler that owns the data directory; undefined if it runs with another configuration. */
export async function findRunning(
  { dataDir, config }: UpOptions,
  clock: Clock,
): Promise<Partial<RunningFacts> | undefined> {
  const facts = await fetchRunningFacts(controlPath(dataDir), clock);
  return facts?.config !== undefined && realPath(facts.config) === realPath(config) ? facts : undefined;
}

/** Serves the client on stdin through the running Hostler. Resolves with false if that Hostler never served. */
export async function joinRunning(options: UpOptions, clock: Clock, signal: AbortSignal): Promise<boolean> {
  // This timer keeps the process alive between tries: stdin is not read yet, and timers of a clock are unreferenced.
  const alive = setInterval(() => {}, aliveMs);
  try {
    for (let tries = 0; tries < triesMax && !signal.aborted; tries++) {
      if (await relayStdio(stdioPath(options.dataDir), process.stdin, process.stdout, signal)) return true;
      await sleep(clock, tryEveryMs, signal);
      // If the other Hostler has ended, this process can take over.
      if (!signal.aborted && !(await findRunning(options, clock))) return false;
    }
    return signal.aborted;
  } finally {
    clearInterval(alive);
  }
}
