/** The host side of the WebSocket transport on a local port, and raw sockets that can send anything. */
import { type AddressInfo, connect as connectTcp, createServer, type Server, type Socket } from 'node:net';
import { type ClientOptions, WebSocket } from 'ws';
import type { BrokerEvent } from '../../../src/broker/broker-events.js';
import { Identities } from '../../../src/broker/identities.js';
import {
  openWebSocketTransport,
  type WebSocketTransport,
  type WebSocketTransportOptions,
} from '../../../src/broker/websocket/websocket-transport.js';
import { openWebSocketConnection } from '../../../src/broker/websocket/worker-connection.js';
import { type KeyEntry, newKey } from '../../../src/config/keys.js';
import { systemClock } from '../../../src/kernel/clock.js';
import { RecordingService, RecordingWorker, workerEntry } from '../../contract/broker/transports.js';
import { eventually } from '../../eventually.js';
import type { RequestConnection } from '../../fakes/request-connection.js';

export const keys = { w1: newKey(), w2: newKey() };

/** Headers of the upgrade of a worker. */
export const headersOf = (key: string, session = `raw-${Math.random().toString(36).slice(2)}`) => ({
  ...{ authorization: `Bearer ${key}`, 'hostler-session': session },
});

export interface PlaceOptions extends Partial<Omit<WebSocketTransportOptions, 'limits'>> {
  readonly limits?: Partial<WebSocketTransportOptions['limits']>;
  /** Members that override those of the key entry of `w1`. */
  readonly entry?: Partial<KeyEntry>;
}

export class SocketPlace {
  readonly service = new RecordingService();
  readonly events: BrokerEvent[] = [];
  readonly identities: Identities;
  transport!: WebSocketTransport;
  readonly #sockets: (WebSocket | Socket)[] = [];
  readonly #connections: RequestConnection[] = [];

  private constructor({ entry, clock = systemClock }: PlaceOptions) {
    const entries = [
      ['w1', workerEntry('w1', keys.w1, entry)],
      ['w2', workerEntry('w2', keys.w2)],
    ] as const;
    this.identities = new Identities(new Map(entries), clock);
  }

  static async open(options: PlaceOptions = {}): Promise<SocketPlace> {
    const place = new SocketPlace(options);
    place.service.onConnected = ({ name: worker, id: session }) =>
      void place.events.push({ kind: 'connected', worker, session, isAgain: false });
    place.service.onLeft = ({ name: worker, id: session }, reason) =>
      void place.events.push({ kind: 'disconnected', worker, session, reason });
    const { limits, clock = systemClock, listen = { port: 0 } } = options;
    place.transport = await openWebSocketTransport({
      ...{ handlers: place.service, identities: place.identities, clock, listen, storeId: 'store-1' },
      limits: { connections: 100, bytesPerSecond: 64 * 1024 * 1024, ...limits },
      onEvent: (event) => void place.events.push(event),
    });
    return place;
  }

  get port(): number {
    return Number(new URL(this.transport.url).port);
  }

  get turnedAway(): string[] {
    return this.events.flatMap((event) => (event.kind === 'turned_away' ? [event.reason] : []));
  }

  async connect(worker = new RecordingWorker(), name: 'w1' | 'w2' = 'w1'): Promise<RequestConnection> {
    const { url } = this.transport;
    const connection = await worker.connect(openWebSocketConnection({ url, key: keys[name], clock: systemClock }));
    this.#connections.push(connection);
    return connection;
  }

  /** A WebSocket with the key of `w1`, unless the headers say otherwise. */
  raw(options: ClientOptions & { url?: string } = {}): RawSocket {
    const headers = { ...headersOf(keys.w1), ...options.headers };
    const socket = new WebSocket(options.url ?? this.transport.url, { ...options, headers });
    this.#sockets.push(socket);
    return new RawSocket(socket);
  }

  /** A WebSocket that is admitted as this worker. */
  async admitted(name: 'w1' | 'w2' = 'w1', session?: string): Promise<RawSocket> {
    const raw = this.raw({ headers: headersOf(keys[name], session) });
    await eventually('the welcome', () => raw.messages.some(({ op }) => op === 'welcome'));
    return raw;
  }

  async tcp(): Promise<Socket> {
    const socket = connectTcp(this.port, '127.0.0.1');
    this.#sockets.push(socket);
    socket.on('error', () => {});
    await new Promise((resolve) => socket.once('connect', resolve));
    return socket;
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) {
      if (socket instanceof WebSocket) socket.terminate();
      else socket.destroy();
    }
    for (const connection of this.#connections) await connection.close();
    await this.transport.close();
  }
}

export class RawSocket {
  readonly socket: WebSocket;
  readonly messages: Record<string, unknown>[] = [];
  readonly opened: Promise<void>;
  /** Code and text of the close frame, or the HTTP status and its text. */
  readonly closed: Promise<{ readonly code: number; readonly text: string }>;

  constructor(socket: WebSocket) {
    this.socket = socket;
    socket.on('message', (data) => void this.messages.push(JSON.parse(String(data))));
    this.opened = new Promise((resolve) => socket.once('open', () => resolve()));
    this.closed = new Promise((resolve) => {
      socket.once('unexpected-response', (_request, response) => {
        let text = '';
        response.on('data', (chunk) => {
          text += chunk;
        });
        response.once('end', () => resolve({ code: response.statusCode ?? 0, text }));
      });
      socket.once('close', (code, text) => resolve({ code, text: text.toString() }));
      socket.on('error', () => {});
    });
  }

  send(message: unknown): void {
    this.socket.send(typeof message === 'string' || Buffer.isBuffer(message) ? message : JSON.stringify(message));
  }
}

/** A TCP server that passes each connection to the test. */
export async function tcpServer(
  serve: (socket: Socket) => void,
): Promise<{ readonly port: number; readonly server: Server }> {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    serve(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { port: (server.address() as AddressInfo).port, server };
}
