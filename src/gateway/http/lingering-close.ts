/**
 * Closes a connection whose client is still sending, so that the client receives the last answer.
 * Closing with unread bytes makes the kernel send a reset, which discards the answer. So Hostler ends its side first, and drops
 * incoming bytes until the client ends its side (RFC 9112, 9.6).
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

  /** Makes the connection linger if the request is still incomplete when Node closes it after the answer. */
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
