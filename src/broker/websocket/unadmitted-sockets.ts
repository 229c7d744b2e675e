/**
 * Sockets that have not said a valid hello yet: in the TLS handshake, before the upgrade, or after it. They are bounded in number, of one
 * address and in all, in time and in bytes, because anybody who reaches the port can open them. A socket with a wrong key keeps its
 * place for the whole time, which bounds how many keys an address can try.
 */
import type { Socket } from 'node:net';
import type { Clock } from '../../kernel/clock.js';
import { helloBytesMax, helloMs, unadmittedMax, unadmittedOfAddressMax } from './limits.js';

interface Place {
  readonly countBytes: (chunk: Buffer) => void;
  readonly release: () => void;
  hasWrongKey: boolean;
}

export class UnadmittedSockets {
  readonly #clock: Clock;
  readonly #timedOut: () => void;
  /** By address and port, because a TLS socket does not name the TCP socket below it. */
  readonly #places = new Map<string, Place>();
  readonly #ofAddress = new Map<string, number>();
  #count = 0;

  constructor(clock: Clock, timedOut: () => void) {
    this.#clock = clock;
    this.#timedOut = timedOut;
  }

  /** Returns false if there are too many. `socket`: the TCP socket. */
  add(socket: Socket): boolean {
    const { remoteAddress: address } = socket;
    if (address === undefined) return false;
    if (this.#count >= unadmittedMax || (this.#ofAddress.get(address) ?? 0) >= unadmittedOfAddressMax) return false;
    const place = this.#addPlace(socket, address);
    socket.once('close', () => {
      if (!place.hasWrongKey) place.release();
    });
    return true;
  }

  /** From now on the bytes of this socket are limited. `socket`: the TCP or TLS socket that was upgraded. */
  upgraded(socket: Socket): void {
    const place = this.#places.get(idOf(socket));
    if (place) socket.on('data', place.countBytes);
  }

  admitted(socket: Socket): void {
    const place = this.#places.get(idOf(socket));
    if (place) socket.off('data', place.countBytes);
    place?.release();
  }

  wrongKey(socket: Socket): void {
    const place = this.#places.get(idOf(socket));
    if (place) place.hasWrongKey = true;
  }

  #addPlace(socket: Socket, address: string): Place {
    const id = idOf(socket);
    let bytes = 0;
    const cancel = this.#clock.at(this.#clock.nowMs() + helloMs, () => {
      place.release();
      if (!socket.destroyed) this.#timedOut();
      socket.destroy();
    });
    const place: Place = {
      hasWrongKey: false,
      countBytes: (chunk) => {
        bytes += chunk.length;
        if (bytes > helloBytesMax) socket.destroy();
      },
      release: () => {
        if (this.#places.get(id) !== place) return;
        cancel();
        this.#places.delete(id);
        this.#change(address, -1);
      },
    };
    // A port is used again: the place of its last socket ends.
    this.#places.get(id)?.release();
    this.#places.set(id, place);
    this.#change(address, 1);
    return place;
  }

  #change(address: string, by: number): void {
    const count = (this.#ofAddress.get(address) ?? 0) + by;
    this.#count += by;
    if (count > 0) this.#ofAddress.set(address, count);
    else this.#ofAddress.delete(address);
  }
}

const idOf = ({ remoteAddress, remotePort }: Socket): string => `${remoteAddress} ${remotePort}`;
