/**
 * The open connections of a listener, counted by key, and which one is closed when there are too many.
 * A connection is anonymous until a request with a valid key has come on it.
 * Not here: their last answers (lingering-close.ts).
 *
 * Invariants:
 * - Never more than `max` connections. When there are, the oldest anonymous one is closed.
 * - A quarter of the slots is reserved for anonymous connections, so that a new client can always present its key.
 * - The other slots belong to keys. One key may take all; when none is free and a key with fewer than a quarter wants one, the key
 *   with the most loses a connection: the oldest idle one, else the oldest. A key with a quarter or more is refused.
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
  /** Without an open request. */
  readonly isIdle: boolean;
}

export class ConnectionShares<C extends SharedConnection> {
  readonly #max: number;
  /** Slots for connections whose key is known. */
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
    // A proxy may send requests of many keys over one connection: it counts for the last of them, and takes no further slot.
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
