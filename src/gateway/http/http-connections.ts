/**
 * The open connections of a listener, counted by key. When there are too many, this file chooses the one to close.
 * A connection is anonymous until it carries a request with a valid key.
 * Not here: the last answer on a closing connection (lingering-close.ts).
 *
 * Invariants:
 * - At most `max` connections are open. Above that, the oldest anonymous connection is closed.
 * - A quarter of the slots is reserved for anonymous connections, so that a new client can always present its key.
 * - The other slots belong to keys, and one key may take all of them. If none is free, a key with less than a quarter takes a
 *   slot from the key with the most: its oldest idle connection, else its oldest. A key with a quarter or more is refused.
 */
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

class Connection implements SharedConnection {
  readonly socket: Socket;
  /** Response to the last request with a key, until it is finished: it refers to the request and its body. */
  #response: ServerResponse | undefined;

  constructor(socket: Socket) {
    this.socket = socket;
  }

  get isIdle(): boolean {
    return this.#response === undefined || this.#response.writableFinished;
  }

  answerWith(response: ServerResponse): void {
    this.#response = response;
    response.once('close', () => {
      // A pipelined request may have set the next one.
      if (this.#response === response) this.#response = undefined;
    });
  }
}

export class HttpConnections {
  readonly #connections = new Map<Socket, Connection>();
  readonly #shares: ConnectionShares<Connection>;

  constructor(max: number) {
    this.#shares = new ConnectionShares(max);
  }

  /** Adds a connection, and may close another one for it. */
  add(socket: Socket): void {
    const connection = new Connection(socket);
    this.#connections.set(socket, connection);
    socket.once('close', () => {
      this.#connections.delete(socket);
      this.#shares.delete(connection);
    });
    this.#shares.add(connection)?.socket.destroy();
  }

  /** Assigns the connection to the key of its request. False: the key has too many connections, and this one must close. */
  claim(socket: Socket, key: string, response: ServerResponse): boolean {
    const connection = this.#connections.get(socket);
    if (!connection) return true;
    connection.answerWith(response);
    const claimed = this.#shares.claim(connection, key);
    if (claimed === 'refused') return false;
    claimed?.socket.destroy();
    return true;
  }

  /** Closes each connection after its pending bytes are sent. */
  destroySoon(): void {
    for (const socket of this.#connections.keys()) socket.destroySoon();
  }
}

export interface SharedConnection {
  readonly isIdle: boolean;
}

export class ConnectionShares<C extends SharedConnection> {
  readonly #max: number;
  /** Maximum of connections with a key. */
  readonly #knownMax: number;
  readonly #quarter: number;
  /** Anonymous connections, oldest first. */
  readonly #anonymous = new Set<C>();
  readonly #keys = new Map<C, string>();
  /** Connections of each key, oldest first. */
  readonly #byKey = new Map<string, Set<C>>();

  constructor(max: number) {
    this.#max = max;
    this.#knownMax = max - Math.max(1, Math.floor(max / 4));
    this.#quarter = Math.max(1, Math.floor(this.#knownMax / 4));
  }

  get size(): number {
    return this.#anonymous.size + this.#keys.size;
  }

  /** Adds a connection and returns the one to close for it, if any. */
  add(connection: C): C | undefined {
    this.#anonymous.add(connection);
    if (this.size <= this.#max) return undefined;
    const [oldest] = this.#anonymous;
    if (oldest) this.#anonymous.delete(oldest);
    return oldest;
  }

  /** Assigns the connection to a key. Returns the connection to close for it, or `refused` if the key has too many. */
  claim(connection: C, key: string): C | 'refused' | undefined {
    const before = this.#keys.get(connection);
    if (before === key) return undefined;
    // A proxy may send requests of many keys over one connection. It counts for the last key and uses one slot.
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

  /** The connection to take from the key with the most, if that key has more than a quarter. */
  #excess(): C | undefined {
    let most: ReadonlySet<C> | undefined;
    for (const own of this.#byKey.values()) if (own.size > (most?.size ?? this.#quarter)) most = own;
    if (!most) return undefined;
    for (const connection of most) if (connection.isIdle) return connection;
    const [oldest] = most;
    return oldest;
  }
}
