/**
 * The open connections of a listener, counted by key. When there are too many, this file chooses the one to close.
 * A connection is anonymous until it carries a request with a valid key.
 *
 * Invariants:
 * - At most `max` connections are open. Above that, the oldest anonymous connection is closed.
 * - A quarter of the slots is reserved for anonymous connections, so that a new client can always present its key.
 * - The other slots belong to keys, and one key may take all of them. If none is free, a key with less than a quarter of them takes
 *   one from the key with the most, if that key has more than a quarter. That key loses its oldest idle connection, or its oldest if
 *   none is idle. Otherwise the new connection is refused.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import type { Cancel, Clock } from '../../kernel/clock.js';
import type { HttpLimits } from './http-limits.js';

class Connection implements SharedConnection {
  /** Response to the last request with a key. Released when the response closes, because it keeps request and body in memory. */
  #response: ServerResponse | undefined;

  constructor(readonly socket: Socket) {}

  get isIdle(): boolean {
    return this.#response === undefined || this.#response.writableFinished;
  }

  answerWith(response: ServerResponse): void {
    this.#response = response;
    response.once('close', () => {
      // A pipelined request may have replaced `#response` already.
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

  /** The connection to close, of the key with the most connections. Undefined: no key has more than a quarter. */
  #excess(): C | undefined {
    let most: ReadonlySet<C> | undefined;
    for (const own of this.#byKey.values()) if (own.size > (most?.size ?? this.#quarter)) most = own;
    if (!most) return undefined;
    for (const connection of most) if (connection.isIdle) return connection;
    const [oldest] = most;
    return oldest;
  }
}

type LingerLimits = Pick<HttpLimits, 'lingering' | 'lingerMs' | 'lingerBytes'>;

/**
 * Closes a connection whose client is still sending, so that the client receives the last answer.
 * Closing with unread bytes makes the kernel send a reset, which discards the answer. So Hostler ends its side first, and drops
 * incoming bytes until the client ends its side (RFC 9112, 9.6).
 * Invariants: number, time and bytes of such connections are bounded; none outlives `close`.
 */
export class LingeringClose {
  readonly #clock: Clock;
  readonly #limits: LingerLimits;
  readonly #sockets = new Map<Socket, Cancel>();
  #isClosed = false;

  constructor(clock: Clock, limits: LingerLimits) {
    this.#clock = clock;
    this.#limits = limits;
  }

  get size(): number {
    return this.#sockets.size;
  }

  has(socket: Socket): boolean {
    return this.#sockets.has(socket);
  }

  /** Ends the writable side after `answer`, and the connection after the client has ended its side. */
  end(socket: Socket, answer?: Buffer): void {
    if (this.#sockets.has(socket)) return;
    if (this.#isClosed || this.#sockets.size >= this.#limits.lingering) {
      if (answer) socket.write(answer);
      socket.destroySoon();
      return;
    }
    const { lingerMs, lingerBytes } = this.#limits;
    const cancel = this.#clock.at(this.#clock.nowMs() + lingerMs, () => socket.destroy());
    this.#sockets.set(socket, cancel);
    socket.once('close', () => {
      cancel();
      this.#sockets.delete(socket);
    });
    if (answer) socket.end(answer);
    else socket.end();
    let bytes = 0;
    // Node's HTTP parser reads from the handle until the socket gets another 'data' listener.
    socket.removeAllListeners('data');
    socket.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > lingerBytes) socket.destroy();
    });
    socket.resume();
  }

  /** Makes the connection linger if its request is still incomplete when Node closes the connection after the answer. */
  insteadOfCut(request: Pick<IncomingMessage, 'socket' | 'complete'>): void {
    const { socket } = request;
    socket.destroySoon = () => {
      socket.destroySoon = Socket.prototype.destroySoon;
      if (request.complete) socket.destroySoon();
      else this.end(socket);
    };
  }

  /** Closes lingering connections once the kernel has their answers. Later connections do not linger. */
  close(): void {
    this.#isClosed = true;
    for (const socket of this.#sockets.keys()) socket.destroySoon();
  }
}
