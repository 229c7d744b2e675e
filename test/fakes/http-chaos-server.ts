/**
 * A TCP server with scripted faults. It counts the bytes and the whole requests that it received, and tests compare these counts
 * with what the client reports about a failed call.
 */
import { type AddressInfo, createServer, type Socket } from 'node:net';

export interface Plan {
  connected?(socket: Socket): void;
  /** Called when bytes of requests arrive. `total`: bytes in this case. */
  bytes?(socket: Socket, total: number): void;
  /** Called for each complete request. */
  request?(socket: Socket, id: number, body: string): void;
}

export interface Ledger {
  connections: number;
  bytes: number;
  whole: number;
}

export interface ChaosServer {
  readonly port: number;
  readonly url: string;
  /** Sets the plan of the next case and starts a new ledger. */
  play(plan: Plan): Ledger;
  close(): Promise<void>;
}

export async function startChaosServer(): Promise<ChaosServer> {
  const sockets = new Set<Socket>();
  let plan: Plan = {};
  let ledger: Ledger = { connections: 0, bytes: 0, whole: 0 };
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    let pending: Buffer = Buffer.alloc(0);
    // Bytes on an old connection belong to the case that opened it.
    let own = ledger;
    let played = plan;
    sockets.add(socket);
    own.connections++;
    socket.on('error', () => {});
    socket.on('close', () => sockets.delete(socket));
    socket.on('end', () => socket.end());
    socket.on('data', (chunk) => {
      if (pending.length === 0 && !socket.writableEnded) {
        own = ledger;
        played = plan;
      }
      own.bytes += chunk.length;
      pending = Buffer.concat([pending, chunk]);
      played.bytes?.(socket, own.bytes);
      for (let whole = takeRequest(pending); whole; whole = takeRequest(pending)) {
        pending = whole.rest;
        own.whole++;
        played.request?.(socket, (JSON.parse(whole.body) as { id: number }).id, whole.body);
      }
    });
    plan.connected?.(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    port,
    url: `http://127.0.0.1:${port}/mcp`,
    play(next) {
      plan = next;
      ledger = { connections: 0, bytes: 0, whole: 0 };
      return ledger;
    },
    close: () =>
      new Promise((resolve) => {
        for (const socket of sockets) socket.destroy();
        server.close(() => resolve());
      }),
  };
}

function takeRequest(bytes: Buffer): { body: string; rest: Buffer } | undefined {
  const headEnd = bytes.indexOf('\r\n\r\n');
  if (headEnd < 0) return undefined;
  const length = Number(/content-length: (\d+)/i.exec(bytes.toString('latin1', 0, headEnd))?.[1] ?? 0);
  const end = headEnd + 4 + length;
  return bytes.length < end ? undefined : { body: bytes.toString('utf8', headEnd + 4, end), rest: bytes.subarray(end) };
}

export const answerBody = (id: number) => `{"jsonrpc":"2.0","id":${id},"result":{"text":"ok"}}`;

/** The same answer in each framing of HTTP/1.1. */
export const FRAMINGS: Record<string, (id: number) => string> = {
  'content-length': (id) => {
    const body = answerBody(id);
    return `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
  },
  chunked: (id) => {
    const body = answerBody(id);
    const [one, two] = [body.slice(0, 9), body.slice(9)];
    const head = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n';
    return `${head}${one.length.toString(16)}\r\n${one}\r\n${two.length.toString(16)}\r\n${two}\r\n0\r\n\r\n`;
  },
  'until close': (id) =>
    `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n${answerBody(id)}`,
  events: (id) => {
    const event = `data: ${answerBody(id)}\n\n`;
    const head = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n';
    return `${head}${event.length.toString(16)}\r\n${event}\r\n0\r\n\r\n`;
  },
};
