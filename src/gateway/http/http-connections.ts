/**
 * The open connections of an ingress: how many there are, for whom, and which is closed when there are too many.
 * Not here: the rule by which they are shared (connection-shares.ts), their last answers (lingering-close.ts).
 */
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

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

export interface SharedConnection {
  /** Nothing is under way on it. */
  readonly isIdle: boolean;
}

export class ConnectionShares<C extends SharedConnection> {
  readonly #max: number;
  /** Places of connections whose key is known. */
  readonly #knownMax: number;
  readonly #quarter: number;
  /** Oldest first. */
  readonly #anonymous = new Set<C>();
  readonly #keys = new Map<C, string>();
  /** Oldest first. */
  readonly #byKey = new Map<string, Set<C>>();

  constructor(max: number) {
    this.#max = max;
    this.#knownMax = max - Math.max(1, Math.floor(max / 4));
    this.#quarter = Math.max(1, Math.floor(this.#knownMax / 4));
  }

  get size(): number {
    return this.#anonymous.size + this.#keys.size;
  }

  /** Takes a new connection. Returns the one to close for it. */
  add(connection: C): C | undefined {
    this.#anonymous.add(connection);
    if (this.size <= this.#max) return undefined;
    const [oldest] = this.#anonymous;
    if (oldest) this.#anonymous.delete(oldest);
    return oldest;
  }

  /** A request with this key came on the connection. Returns the one to close for it, or that the key has too many. */
  claim(connection: C, key: string): C | 'refused' | undefined {
    const before = this.#keys.get(connection);
    if (before === key) return undefined;
    // A proxy may send requests of many keys over one connection: it counts for the last of them, and takes no place more.
    let evicted: C | undefined;
    if (before === undefined && this.#keys.size >= this.#knownMax) {
      evicted = this.#countOf(key) < this.#quarter ? this.#excess() : undefined;
      if (!evicted) return 'refused';
      this.delete(evicted);
    }
    this.delete(connection);
    this.#keys.set(connection, key);
    const own = this.#byKey.get(key);
    if (own) own.add(connection);
    else this.#byKey.set(key, new Set([connection]));
    return evicted;
  }

  delete(connection: C): void {
    const key = this.#keys.get(connection);
    if (key === undefined) {
      this.#anonymous.delete(connection);
      return;
    }
    this.#keys.delete(connection);
    const own = this.#byKey.get(key);
    own?.delete(connection);
    if (own?.size === 0) this.#byKey.delete(key);
  }

  #countOf(key: string): number {
    return this.#byKey.get(key)?.size ?? 0;
  }

  /** The connection that the key with the most loses, if that key has more than a quarter. */
  #excess(): C | undefined {
    let most: ReadonlySet<C> | undefined;
    for (const own of this.#byKey.values()) if (own.size > (most?.size ?? this.#quarter)) most = own;
    if (!most) return undefined;
    for (const connection of most) if (connection.isIdle) return connection;
    const [oldest] = most;
    return oldest;
  }
}
