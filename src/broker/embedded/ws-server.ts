/**
 * Listens for WebSockets, on a port of its own. Who is not meant for us is turned away before there is a WebSocket.
 * Not here: who is let in (session.ts), what frames do.
 *
 * Invariants: one path; the same rule for Host and Origin as the gateway's; no compression; an address that others reach is
 * served over TLS, unless somebody said in so many words that it need not be.
 */
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, STATUS_CODES } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { createSecureContext } from 'node:tls';
import { WebSocketServer } from 'ws';
import { isLoopback } from '../../config/values.js';
import type { Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { type OriginGuard, originGuard } from '../../transports/http/origin-guard.js';
import type { TurnedAway } from './events.js';
import { chunksMax, fragmentsMax, frameBytesMax, helloBytesMax } from './limits.js';
import type { Wire, WireReader } from './wire.js';
import { WsWire } from './ws-wire.js';

const brokerPath = '/broker';

export interface ListenOptions {
  readonly host?: string;
  readonly port: number;
  /** Files. */
  readonly tls?: { readonly cert: string; readonly key: string };
  /** Serves others without TLS: keys and calls can be read on the way. */
  readonly insecure?: boolean;
  readonly allowedHosts?: readonly string[];
  readonly allowedOrigins?: readonly string[];
}

export interface WsServerOptions extends ListenOptions {
  readonly clock: Clock;
  readonly limits: { readonly connections: number; readonly pingMs: number; readonly pongMs: number };
  hasRoom(): boolean;
  turnAway(reason: TurnedAway): void;
  attach(wire: Wire): WireReader;
}

export interface WsServer {
  readonly url: string;
  /** Takes nobody more. Resolves when nobody is left. */
  close(): Promise<void>;
}

const headerBytesMax = 16 * 1024;
/** For the handshake of TLS, and for the header of a request. */
const handshakeMs = 5_000;
/** Besides WebSockets: those that are being turned away. */
const spareConnections = 256;

export async function listenForSockets(options: WsServerOptions): Promise<WsServer> {
  const { host = '127.0.0.1', port, clock, limits } = options;
  const server = makeServer(options, host);
  server.maxConnections = limits.connections + spareConnections;
  const isMeant = guardOf(options, host);
  const sockets = new WebSocketServer({
    ...{ noServer: true, clientTracking: false, perMessageDeflate: false },
    ...{ maxPayload: frameBytesMax, maxFragments: fragmentsMax, maxBufferedChunks: chunksMax },
    // Who pings and never reads would have all the answers kept for it: the wire asks first.
    autoPong: false,
  });
  server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    socket.on('error', () => socket.destroy());
    const turnAway = (status: number, reason: TurnedAway) => {
      options.turnAway(reason);
      const answer = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`;
      socket.end(answer, () => socket.destroy());
    };
    if (!isMeant(request.headers.host, request.headers.origin)) return turnAway(403, 'wrong_host_or_origin');
    if (request.url !== brokerPath) return turnAway(404, 'wrong_path');
    if (!options.hasRoom()) return turnAway(503, 'too_many_connections');
    sockets.handleUpgrade(request, socket, head, (webSocket) => {
      const wire = new WsWire(webSocket, socket, clock, limits);
      wire.meter(helloBytesMax);
      wire.readBy(options.attach(wire));
    });
  });
  await listening(server, host, port);
  const { port: bound } = server.address() as AddressInfo;
  const scheme = options.tls ? 'wss' : 'ws';
  return {
    url: `${scheme}://${reachable(host)}:${bound}${brokerPath}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function makeServer({ tls, insecure = false }: ListenOptions, host: string): Server {
  if (!tls && !isLoopback(host) && !insecure)
    throw new HostError('invalid_spec', `broker.listen: '${host}' can be reached by others and has no TLS`, {
      field: 'broker.listen.tls',
      execution: 'not_executed',
      hint: 'give a certificate and its key, listen on 127.0.0.1, or set insecure if something else encrypts',
    });
  const options = {
    maxHeaderSize: headerBytesMax,
    headersTimeout: handshakeMs,
    requestTimeout: handshakeMs,
    connectionsCheckingInterval: 1_000,
    keepAliveTimeout: 1_000,
  };
  // Nothing but WebSockets is served here.
  const refuse: Parameters<typeof createServer>[1] = (_request, response) => {
    response.writeHead(426, { connection: 'close', 'content-length': 0 }).end();
  };
  return tls
    ? createTlsServer(
        { ...options, ...certificateOf(tls), minVersion: 'TLSv1.2', handshakeTimeout: handshakeMs },
        refuse,
      )
    : createServer(options, refuse);
}

function certificateOf({ cert, key }: { readonly cert: string; readonly key: string }) {
  const read = { cert: readPem('cert', cert), key: readPem('key', key) };
  try {
    createSecureContext(read);
  } catch (cause) {
    throw unusable('tls', 'the certificate and its key cannot be used together', cause);
  }
  return read;
}

function readPem(field: string, file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (cause) {
    throw unusable(`tls.${field}`, `the file ${file} cannot be read`, cause);
  }
}

const unusable = (field: string, what: string, cause: unknown): HostError =>
  new HostError('invalid_spec', `broker.listen.${field}: ${what}`, {
    field: `broker.listen.${field}`,
    execution: 'not_executed',
    hint: 'give the files of a certificate and its key in PEM, readable for Hostler',
    cause,
  });

function listening(server: Server, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const failed = (cause: Error & { code?: string }) =>
      reject(
        new HostError('connect_failed', `the broker cannot listen on ${host}:${port}`, {
          reason: cause.code ?? 'listen',
          execution: 'not_executed',
          hint: 'choose another port or address, or end what is using it',
          cause,
        }),
      );
    server.once('error', failed);
    server.listen(port, host, () => {
      server.off('error', failed);
      // Of one connection; the others go on.
      server.on('error', () => undefined);
      resolve();
    });
  });
}

function guardOf({ allowedHosts = [], allowedOrigins = [] }: ListenOptions, host: string): OriginGuard {
  const own = anyAddress.has(host) ? [] : [bracketed(host)];
  return originGuard({ hosts: [...own, ...allowedHosts], origins: allowedOrigins });
}

const anyAddress = new Set(['0.0.0.0', '::']);
const bracketed = (host: string): string => (host.includes(':') ? `[${host}]` : host);
const reachable = (host: string): string =>
  host === '::' ? '[::1]' : anyAddress.has(host) ? '127.0.0.1' : bracketed(host);
