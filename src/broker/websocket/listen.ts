/**
 * Listens for the WebSockets of workers, on a port of its own.
 * Not here: which worker a connection belongs to (websocket-transport.ts), messages (host-connection.ts).
 *
 * Invariants: one path; Host and Origin are checked (own-names.ts); no compression; an address that other machines reach is
 * served with TLS, unless the configuration says `insecure`.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, STATUS_CODES } from 'node:http';
import { createServer as createTlsServer, type Server as TlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { type WebSocket, WebSocketServer } from 'ws';
import type { BrokerSettings } from '../../config/broker-settings.js';
import { isLoopback } from '../../config/values.js';
import type { Clock } from '../../kernel/clock.js';
import { notExecuted } from '../../kernel/errors.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import { reachable } from '../../transports/http/host-name.js';
import type { OriginGuard } from '../../transports/http/origin-guard.js';
import { readTls, type TlsContext, watchTls } from '../../transports/http/tls-files.js';
import type { TurnedAway } from '../broker-events.js';
import { socketOptions } from './frame-socket.js';
import { brokerPath, keyChallenge, sessionHeader, upgradeMs } from './limits.js';
import { ownNames } from './own-names.js';
import { UnadmittedSockets } from './unadmitted-sockets.js';

/** As in the configuration. */
export type ListenOptions = Pick<BrokerSettings['listen'], 'port'> & Partial<BrokerSettings['listen']>;

interface ListenParts extends ListenOptions {
  readonly clock: Clock;
  readonly connectionsMax: number;
  turnedAway(reason: TurnedAway): void;
  onProblem(error: unknown): void;
  /** Returns what serves the WebSocket of this worker, or why it gets none. */
  admit(key: string, session: string): Refusal | ServeSocket;
}

export interface Refusal {
  readonly status: number;
  readonly reason: TurnedAway;
  readonly text: string;
}

/** `below`: the TCP or TLS socket. */
export type ServeSocket = (socket: WebSocket, below: Duplex) => void;

const headerBytesMax = 16 * 1024;
/** TCP connections that are accepted in addition to those of admitted workers. */
const spareConnections = 1_024;

/** `close` accepts no more sockets, and cuts those that are not admitted. It resolves when all sockets are closed. */
export async function listenForWorkers(options: ListenParts): Promise<{ url: string; close(): Promise<void> }> {
  const { host = '127.0.0.1', port, clock, turnedAway, onProblem } = options;
  const field = 'broker.listen.tls';
  const tls = options.tls && readTls(options.tls, field);
  requireTlsBeyondLoopback(options, host);
  const server = makeServer(tls);
  server.maxConnections = options.connectionsMax + spareConnections;
  const unadmitted = new UnadmittedSockets(clock, () => turnedAway('upgrade_timeout'));
  server.on('connection', (socket: Socket) => {
    if (unadmitted.add(socket)) return;
    turnedAway('too_many_connections');
    socket.destroy();
  });
  const namesFor = (cert: Buffer | undefined): OriginGuard =>
    ownNames({ host, cert, allowedHosts: options.allowedHosts ?? [], allowedOrigins: options.allowedOrigins ?? [] });
  let isOurs = namesFor(tls?.cert);
  server.on(
    'upgrade',
    makeUpgrade(options, (name, origin) => isOurs(name, origin), unadmitted),
  );
  try {
    server.listen(port, host);
    await once(server, 'listening');
  } catch (cause) {
    const { code: reason = 'listen' } = cause as NodeJS.ErrnoException;
    const hint = 'choose another port or address, or end the process that uses it';
    throw notExecuted('connect_failed', `the broker cannot listen on ${host}:${port}`, hint, { reason, cause });
  }
  // Without a listener, an error after the start would end the process.
  server.on('error', () => undefined);
  if (options.tls) {
    const renew = (context: TlsContext) => {
      (server as TlsServer).setSecureContext({ ...context });
      isOurs = namesFor(context.cert);
    };
    server.once('close', watchTls(options.tls, clock, renew, onProblem, field));
  }
  return {
    url: `${tls ? 'wss' : 'ws'}://${reachable(host)}:${(server.address() as AddressInfo).port}${brokerPath}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
        unadmitted.close();
      }),
  };
}

function makeUpgrade({ turnedAway, admit }: ListenParts, isOurs: OriginGuard, unadmitted: UnadmittedSockets) {
  const sockets = new WebSocketServer({ ...socketOptions, noServer: true, clientTracking: false });
  return (request: IncomingMessage, below: Duplex, head: Buffer): void => {
    below.on('error', () => below.destroy());
    const refuse = ({ status, reason, text }: Refusal) => {
      turnedAway(reason);
      answer(below, status, text);
    };
    const { host: name, origin, authorization = '', [sessionHeader]: session = '' } = request.headers;
    if (!isOurs(name, undefined)) return refuse({ status: 403, reason: 'wrong_host', text: wrongName(name) });
    if (!isOurs(name, origin)) return refuse({ status: 403, reason: 'wrong_origin', text: wrongOrigin });
    if (request.url !== brokerPath) return refuse({ status: 404, reason: 'wrong_path', text: wrongPath });
    const admitted = admit(authorization.replace(/^Bearer /i, ''), String(session));
    if (typeof admitted !== 'function') return refuse(admitted);
    sockets.handleUpgrade(request, below, head, (socket) => {
      unadmitted.admitted(below as Socket);
      admitted(socket, below);
    });
  };
}

function answer(socket: Duplex, status: number, text: string): void {
  const body = `${text}\n`;
  const challenge = status === 401 ? `\r\nWWW-Authenticate: ${keyChallenge}` : '';
  const head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8`;
  socket.end(`${head}${challenge}\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`, () =>
    socket.destroy(),
  );
}

const wrongName = (name = ''): string =>
  `this broker does not accept the name '${neutraliseLine(name, nameChars)}'; add it to broker.listen.allowedHosts`;
const wrongOrigin = 'this broker does not accept this web page; add its origin to broker.listen.allowedOrigins';
const wrongPath = `the broker is at ${brokerPath}`;
const nameChars = 256;

function makeServer(tls: TlsContext | undefined): Server {
  const options = {
    maxHeaderSize: headerBytesMax,
    headersTimeout: upgradeMs,
    requestTimeout: upgradeMs,
    connectionsCheckingInterval: 1_000,
    keepAliveTimeout: 1_000,
  };
  const refuse: Parameters<typeof createServer>[1] = (_request, response) => {
    response.writeHead(426, { connection: 'close', 'content-type': 'text/plain' }).end('connect with a WebSocket\n');
  };
  if (!tls) return createServer(options, refuse);
  return createTlsServer({ ...options, ...tls, handshakeTimeout: upgradeMs }, refuse);
}

function requireTlsBeyondLoopback({ tls, insecure = false }: ListenOptions, host: string): void {
  if (tls || insecure || isLoopback(host)) return;
  const message = `broker.listen: other machines can reach '${host}', and there is no TLS`;
  const hint = 'set broker.listen.tls, listen on 127.0.0.1, or set broker.listen.insecure if a proxy or VPN encrypts';
  throw notExecuted('invalid_spec', message, hint, { field: 'broker.listen.tls' });
}
