/**
 * Sockets that are not upgraded yet: their key was not checked. Their number (per address and in total) and their time are bounded, because
 * every machine that reaches the port can open them.
 */
import type { Socket } from 'node:net';
import type { Cancel, Clock } from '../../kernel/clock.js';
import { unadmittedMax, unadmittedOfAddressMax, upgradeMs } from './limits.js';

interface Place {
  readonly socket: Socket;
  readonly address: string;
  readonly cancel: Cancel;
}

export class UnadmittedSockets {
  readonly #clock: Clock;
  readonly #timedOut: () => void;
  /** By addresses and port, because a TLS socket does not name the TCP socket below it. */
  readonly #places = new Map<string, Place>();

  constructor(clock: Clock, timedOut: () => void) {
    this.#clock = clock;
    this.#timedOut = timedOut;
  }

  /** Returns false if there are too many. `socket`: the TCP socket. */
  add(socket: Socket): boolean {
    const { remoteAddress: address } = socket;
    const ofAddress = [...this.#places.values()].filter((place) => place.address === address).length;
    if (address === undefined || this.#places.size >= unadmittedMax || ofAddress >= unadmittedOfAddressMax)
      return false;
    const id = idOf(socket);
    // A remote port can be reused before the close event of its earlier socket.
    this.#release(id);
    const cancel = this.#clock.at(this.#clock.nowMs() + upgradeMs, () => {
      this.#release(id);
      this.#timedOut();
      socket.destroy();
    });
    const place = { socket, address, cancel };
    this.#places.set(id, place);
    socket.once('close', () => {
      if (this.#places.get(id) === place) this.#release(id);
    });
    return true;
  }

  /** The key of this TCP or TLS socket is valid. */
  admitted(socket: Socket): void {
    this.#release(idOf(socket));
  }

  /** Cuts all, also those in the TLS handshake: the server would wait for them, and does not cut them itself. */
  close(): void {
    for (const { socket } of this.#places.values()) socket.destroy();
  }

  #release(id: string): void {
    this.#places.get(id)?.cancel();
    this.#places.delete(id);
  }
}

/** The port of a client may have a connection to each address of this machine. */
const idOf = ({ remoteAddress, remotePort, localAddress }: Socket): string =>
  `${remoteAddress} ${remotePort} ${localAddress}`;
