/**
 * The socket `stdio.sock` in the data directory, on which the host serves clients through their relays (relay/).
 * Not here: serving (gateway/stdio), ownership of the data directory (control/control-server.ts).
 * Invariants: only the same user can open the socket. Only the owner of the data directory creates it, so an existing socket is
 * stale and is removed. The end of one direction does not end the other. A client id has one connection at a time.
 */
import { existsSync, rmSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { type Clock, sleep } from '../../kernel/clock.js';
import { listenPrivately } from '../control/control-server.js';
import { type Hello, helloBytesMax, parseHello, stoppingLine, type Welcome } from '../relay/hello.js';
import type { EndReason } from '../relay/relay-state.js';

export interface RelaySocketOptions {
  readonly file: string;
  readonly clock: Clock;
  /** Further clients are refused. */
  readonly clientsMax: number;
  /** `fullAt`: `clientsMax`, if there is no place for the client. */
  readonly welcome: (hello: Hello, fullAt: number | undefined) => Welcome;
  /** Resolves when the client needs no more service: all of its requests are answered, or the connection is lost. */
  readonly serve: (socket: Socket, client: string) => Promise<void>;
}

export interface RelaySocket {
  readonly count: number;
  /** Makes the socket again if its file was removed, for example by a cleaner of old files. Resolves with true if it did so. */
  restore(): Promise<boolean>;
  /** Accepts no more relays, and tells the connected ones why the host ends. Resolves when no relay sends any more. */
  stop(reason: EndReason): Promise<void>;
  close(): Promise<void>;
}

interface Client {
  readonly socket: Socket;
  readonly served: Promise<void>;
}

/** Connections without a welcome. One more is closed at once, and its relay tries again. */
const greetingsMax = 64;
const helloMs = 10_000;
const farewellMs = 1_000;
const NEWLINE = 0x0a;

export async function openRelaySocket(options: RelaySocketOptions): Promise<RelaySocket> {
  const { file, clock, clientsMax } = options;
  const sockets = new Set<Socket>();
  const clients = new Map<string, Client>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => socket.destroy());
    if (sockets.size >= clientsMax + greetingsMax) return void socket.destroy();
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    readHello(socket, clock, (hello) => void greet(socket, hello));
  });

  const greet = async (socket: Socket, hello: Hello): Promise<void> => {
    const { client: id } = hello;
    // The relay has closed its earlier connection, but this end may not have noticed yet.
    const earlier = clients.get(id);
    earlier?.socket.destroy();
    await earlier?.served;
    const hasPlace = clients.size < clientsMax || clients.has(id);
    const welcome = options.welcome(hello, hasPlace ? undefined : clientsMax);
    socket.write(`${JSON.stringify(welcome)}\n`);
    // destroySoon, not end: the socket is paused, so it would never read the end of the other side and stay open.
    if (welcome.refused !== undefined) return socket.destroySoon();
    const client = { socket, served: options.serve(socket, id) };
    clients.set(id, client);
    await client.served.catch(() => {});
    if (clients.get(id) === client) clients.delete(id);
    socket.end();
  };

  let isStopped = false;
  rmSync(file, { force: true });
  const error = await listenPrivately(server, file);
  if (error) throw error;
  return {
    get count() {
      return clients.size;
    },
    async restore() {
      if (isStopped || existsSync(file)) return false;
      // Connections stay open. The old socket is closed first, because closing it removes the file of that name.
      server.close();
      return (await listenPrivately(server, file)) === undefined;
    },
    async stop(reason) {
      isStopped = true;
      server.close();
      const ended = [...clients.values()].map(({ socket }) => inputEnd(socket));
      for (const { socket } of clients.values()) if (socket.writable) socket.write(stoppingLine(reason));
      await Promise.race([Promise.all(ended), sleep(clock, farewellMs)]);
    },
    close: () =>
      new Promise((resolve) => {
        isStopped = true;
        server.close(() => resolve());
        for (const socket of sockets) socket.destroySoon();
      }),
  };
}

const inputEnd = (socket: Socket): Promise<void> =>
  new Promise((resolve) => {
    if (socket.readableEnded || socket.destroyed) return resolve();
    socket.once('end', resolve);
    socket.once('close', resolve);
  });

/** Bytes after the first line stay in the socket. */
function readHello(socket: Socket, clock: Clock, onHello: (hello: Hello) => void): void {
  let received: Buffer = Buffer.alloc(0);
  const cancel = clock.at(clock.nowMs() + helloMs, () => socket.destroy());
  const read = (chunk: Buffer) => {
    received = received.length === 0 ? chunk : Buffer.concat([received, chunk]);
    const end = received.indexOf(NEWLINE);
    if (end < 0 && received.length <= helloBytesMax) return;
    cancel();
    socket.off('data', read);
    socket.pause();
    const hello = end < 0 ? undefined : parseHello(received.toString('utf8', 0, end));
    if (!hello) return void socket.destroy();
    if (end + 1 < received.length) socket.unshift(received.subarray(end + 1));
    onHello(hello);
  };
  socket.on('data', read);
  socket.once('close', cancel);
}
