/**
 * Ends a connection whose client still writes, so that the client gets our last answer.
 * A close with unread bytes makes the kernel send a reset, which discards the answer. So our side ends first, and the rest is read
 * and dropped until the client ends its side too (RFC 9112, 9.6).
 * Invariants: number, time and bytes of such connections are bounded; none outlives `close`.
 */
import type { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import type { Cancel, Clock } from '../../kernel/clock.js';
import type { HttpLimits } from './http-limits.js';

type LingerLimits = Pick<HttpLimits, 'lingering' | 'lingerMs' | 'lingerBytes'>;

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

  /** Ends our side after `answer`, and the whole when the client has ended its own. */
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
    // The parser reads from the handle itself until another listens to the socket.
    socket.removeAllListeners('data');
    socket.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > lingerBytes) socket.destroy();
    });
    socket.resume();
  }

  /**
   * Node will cut this connection after the answer to this request. If the client has not sent all of the request by then, the
   * connection lingers instead.
   */
  insteadOfCut(request: Pick<IncomingMessage, 'socket' | 'complete'>): void {
    const { socket } = request;
    socket.destroySoon = () => {
      socket.destroySoon = Socket.prototype.destroySoon;
      if (request.complete) socket.destroySoon();
      else this.end(socket);
    };
  }

  /** Cuts those that linger as soon as their answers are with the kernel; from now on none does. */
  close(): void {
    this.#isClosed = true;
    for (const socket of this.#sockets.keys()) socket.destroySoon();
  }
}
