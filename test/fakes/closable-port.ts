/**
 * A port of 127.0.0.1 that answers JSON-RPC over HTTP. A test can close it and open it again with the same number.
 */
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';

export interface RpcMessage {
  readonly id?: number;
  /** Absent for a request without a body. */
  readonly method?: string;
  readonly params?: { readonly arguments?: Readonly<Record<string, unknown>> };
}

export class ClosablePort {
  readonly #answer: (message: RpcMessage, response: ServerResponse) => void;
  #server: Server | undefined;
  #port = 0;

  constructor(answer: (message: RpcMessage, response: ServerResponse) => void) {
    this.#answer = answer;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}/mcp`;
  }

  async open(): Promise<void> {
    const server = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on('error', () => {});
      response.on('error', () => {});
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        const body = Buffer.concat(chunks).toString();
        this.#answer(body === '' ? {} : (JSON.parse(body) as RpcMessage), response);
      });
    });
    server.on('connection', (socket: Socket) => socket.on('error', () => {}));
    await new Promise<void>((resolve) => server.listen(this.#port, '127.0.0.1', resolve));
    this.#port = (server.address() as AddressInfo).port;
    this.#server = server;
  }

  /** Resets every connection; new ones are refused. */
  async close(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (!server) return;
    await new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  }
}
