/**
 * Listens for the WebSockets of workers, on a port of its own.
 * Not here: which worker a connection belongs to (worker-connections.ts), messages (host-connection.ts).
 *
 * Invariants: one path; Host and Origin are checked (own-names.ts); no compression; an address that other machines reach is
 * served with TLS, unless the configuration says `insecure`.
 */
import { createServer, type IncomingMessage, type Server, STATUS_CODES } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { type WebSocket, WebSocketServer } from 'ws';
import { isLoopback } from '../../config/values.js';
import type { Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import { readTls, type TlsContext } from '../../transports/http/tls-files.js';
import type { TurnedAway } from '../broker-events.js';
import { brokerLimits } from '../protocol/limits.js';
import { brokerPath, chunksMax, fragmentsMax, helloMs } from './limits.js';
import { bracketed, ownNames } from './own-names.js';
import { UnadmittedSockets } from './unadmitted-sockets.js';

export interface ListenOptions {
  readonly host?: string | undefined;
  readonly port: number;
  /** Paths of PEM files. */
  readonly tls?: { readonly cert: string; readonly key: string } | undefined;
  /** Serves other machines without TLS: keys and calls can be read on the network. */
  readonly insecure?: boolean | undefined;
  readonly allowedHosts?: readonly string[] | undefined;
  readonly allowedOrigins?: readonly string[] | undefined;
}

export interface Listening extends ListenOptions {
  readonly clock: Clock;
  readonly connectionsMax: number;
  hasRoom(): boolean;
  turnedAway(reason: TurnedAway): void;
  accept(socket: WebSocket, below: Duplex, admission: Admission): void;
}

/** A socket for which neither function is called is cut after `helloMs`. */
export interface Admission {
  admitted(): void;
  wrongKey(): void;
}

export interface Listener {
  readonly url: string;
  /** Accepts no more sockets, and cuts those before the upgrade. Resolves when all sockets are closed. */
  close(): Promise<void>;
}

const headerBytesMax = 16 * 1024;
/** TCP connections beside those that are admitted. */
const spareConnections = 1_024;

export async function listenForWorkers(options: Listening): Promise<Listener> {
  const { host = '127.0.0.1', port, clock, turnedAway } = options;
  const tls = options.tls && readTls(options.tls, 'broker.listen.tls');
  requireTlsBeyondLoopback(options, host);
  const server = makeServer(tls);
  server.maxConnections = options.connectionsMax + spareConnections;
  const unadmitted = new UnadmittedSockets(clock, () => turnedAway('hello_timeout'));
  server.on('connection', (socket: Socket) => {
    if (unadmitted.add(socket)) return;
    turnedAway('too_many_connections');
    socket.destroy();
  });
  const upgrade = makeUpgrade(options, host, tls?.cert, unadmitted);
  server.on('upgrade', upgrade);
  await bind(server, host, port);
  const { port: bound } = server.address() as AddressInfo;
  return {
    url: `${tls ? 'wss' : 'ws'}://${reachable(host)}:${bound}${brokerPath}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function makeUpgrade(options: Listening, host: string, cert: Buffer | undefined, unadmitted: UnadmittedSockets) {
  const { allowedHosts = [], allowedOrigins = [], hasRoom, turnedAway, accept } = options;
  const isOurs = ownNames({ host, cert, allowedHosts, allowedOrigins });
  const sockets = new WebSocketServer({
    ...{ noServer: true, clientTracking: false, perMessageDeflate: false, autoPong: false },
    ...{ maxPayload: brokerLimits.messageBytes, maxFragments: fragmentsMax, maxBufferedChunks: chunksMax },
    // Each message is checked with its JSON.
    skipUTF8Validation: true,
  });
  return (request: IncomingMessage, below: Duplex, head: Buffer): void => {
    const socket = below as Socket;
    socket.on('error', () => socket.destroy());
    const refuse = (status: number, reason: TurnedAway, text: string) => {
      turnedAway(reason);
      answer(socket, status, text);
    };
    const { host: name, origin } = request.headers;
    if (!isOurs(name, undefined)) return refuse(403, 'wrong_host', wrongName(name));
    if (!isOurs(name, origin)) return refuse(403, 'wrong_origin', wrongOrigin);
    if (request.url !== brokerPath) return refuse(404, 'wrong_path', `the broker is at ${brokerPath}`);
    if (!hasRoom()) return refuse(503, 'too_many_connections', 'the broker has broker.limits.connections connections');
    unadmitted.upgraded(socket);
    const admission: Admission = {
      admitted: () => unadmitted.admitted(socket),
      wrongKey: () => unadmitted.wrongKey(socket),
    };
    sockets.handleUpgrade(request, socket, head, (webSocket) => accept(webSocket, socket, admission));
  };
}

function answer(socket: Duplex, status: number, text: string): void {
  const body = `${text}\n`;
  const head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8`;
  socket.end(`${head}\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`, () => socket.destroy());
}

const wrongName = (name = ''): string =>
  `this broker does not accept the name '${neutraliseLine(name, nameChars)}'; add it to broker.listen.allowedHosts`;
const wrongOrigin = 'this broker does not accept this web page; add its origin to broker.listen.allowedOrigins';
const nameChars = 256;

function makeServer(tls: TlsContext | undefined): Server {
  const options = {
    maxHeaderSize: headerBytesMax,
    headersTimeout: helloMs,
    requestTimeout: helloMs,
    connectionsCheckingInterval: 1_000,
    keepAliveTimeout: 1_000,
  };
  const refuse: Parameters<typeof createServer>[1] = (_request, response) => {
    response.writeHead(426, { connection: 'close', 'content-type': 'text/plain' }).end('connect with a WebSocket\n');
  };
  if (!tls) return createServer(options, refuse);
  return createTlsServer({ ...options, ...tls, handshakeTimeout: helloMs }, refuse);
}

function requireTlsBeyondLoopback({ tls, insecure = false }: ListenOptions, host: string): void {
  if (tls || insecure || isLoopback(host)) return;
  throw new HostError('invalid_spec', `broker.listen: other machines can reach '${host}', and there is no TLS`, {
    field: 'broker.listen.tls',
    execution: 'not_executed',
    hint: 'set broker.listen.tls, listen on 127.0.0.1, or set broker.listen.insecure if a proxy or VPN encrypts',
  });
}

function bind(server: Server, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const failed = (cause: Error & { code?: string }) =>
      reject(
        new HostError('connect_failed', `the broker cannot listen on ${host}:${port}`, {
          reason: cause.code ?? 'listen',
          execution: 'not_executed',
          hint: 'choose another port or address, or end the process that uses it',
          cause,
        }),
      );
    server.once('error', failed);
    server.listen(port, host, () => {
      server.off('error', failed);
      // An error of one connection. The others go on.
      server.on('error', () => undefined);
      resolve();
    });
  });
}

const reachable = (host: string): string =>
  host === '::' ? '[::1]' : host === '0.0.0.0' ? '127.0.0.1' : bracketed(host);
