/**
 * The open connections of an ingress: how many there are, for whom, and which is closed when there are too many.
 * Not here: the rule by which they are shared (connection-shares.ts), their last answers (lingering-close.ts).
 */
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { ConnectionShares, type SharedConnection } from './connection-shares.js';

class Connection implements SharedConnection {
  readonly socket: Socket;
  /** To the last request with a key. */
  response: ServerResponse | undefined;

  constructor(socket: Socket) {
    this.socket = socket;
  }

  get isIdle(): boolean {
    return this.response === undefined || this.response.writableFinished;
  }
}

export class HttpConnections {
  readonly #connections = new Map<Socket, Connection>();
  readonly #shares: ConnectionShares<Connection>;

  constructor(max: number) {
    this.#shares = new ConnectionShares(max);
  }

  /** A new connection; another may be closed for it. */
  add(socket: Socket): void {
    const connection = new Connection(socket);
    this.#connections.set(socket, connection);
    socket.once('close', () => {
      this.#connections.delete(socket);
      this.#shares.delete(connection);
    });
    this.#shares.add(connection)?.socket.destroy();
  }

  /** A request with this key came on the connection. False: the key has too many, and this one is to end. */
  claim(socket: Socket, key: string, response: ServerResponse): boolean {
    const connection = this.#connections.get(socket);
    if (!connection) return true;
    connection.response = response;
    const claimed = this.#shares.claim(connection, key);
    if (claimed === 'refused') return false;
    claimed?.socket.destroy();
    return true;
  }

  /** Closes all once what was written has left. */
  destroySoon(): void {
    for (const socket of this.#connections.keys()) socket.destroySoon();
  }
}
