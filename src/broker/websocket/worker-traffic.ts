/**
 * What the connections of one worker share: the rate of their bytes, and the bytes that wait to be read by it. The waiting bytes of
 * all workers have a bound too.
 */
import type { Clock } from '../../kernel/clock.js';
import { burstMs, outboundMax, outboundOfWorkerMax } from './limits.js';

/**
 * Paces bytes, in and out together. They are counted after the fact, so a message larger than the burst passes and is paid for
 * afterwards. Nothing is dropped: the connections are paused.
 */
export class ByteRate {
  readonly #clock: Clock;
  readonly #bytesPerMs: number;
  readonly #setPaused: (isPaused: boolean) => void;
  /** When the bytes so far are paid for. */
  #paidAtMs = Number.NEGATIVE_INFINITY;
  #isPaused = false;

  constructor(clock: Clock, bytesPerSecond: number, setPaused: (isPaused: boolean) => void) {
    this.#clock = clock;
    this.#bytesPerMs = bytesPerSecond / 1_000;
    this.#setPaused = setPaused;
  }

  get isPaused(): boolean {
    return this.#isPaused;
  }

  use(bytes: number): void {
    const nowMs = this.#clock.nowMs();
    this.#paidAtMs = Math.max(this.#paidAtMs, nowMs - burstMs) + bytes / this.#bytesPerMs;
    if (this.#isPaused || this.#paidAtMs <= nowMs) return;
    this.#isPaused = true;
    this.#setPaused(true);
    this.#resumeLater();
  }

  #resumeLater(): void {
    this.#clock.at(this.#paidAtMs, () => {
      // Replies may have been sent meanwhile.
      if (this.#paidAtMs > this.#clock.nowMs()) return this.#resumeLater();
      this.#isPaused = false;
      this.#setPaused(false);
    });
  }
}

export interface PacedConnection {
  setPaused(reason: 'rate', isPaused: boolean): void;
}

/** Bytes that wait to be read by all workers. */
export interface Outbound {
  bytes: number;
}

/** `must`: sent in any case. `progress`: may use half of the room, so that it does not delay replies. */
export type SendKind = 'must' | 'reply' | 'progress';

export class WorkerTraffic {
  readonly rate: ByteRate;
  readonly #connections = new Set<PacedConnection>();
  readonly #outbound: Outbound;
  #unreadBytes = 0;

  /** `outbound`: shared by all workers. */
  constructor(clock: Clock, bytesPerSecond: number, outbound: Outbound) {
    this.#outbound = outbound;
    this.rate = new ByteRate(clock, bytesPerSecond, (isPaused) => {
      for (const connection of this.#connections) connection.setPaused('rate', isPaused);
    });
  }

  get connections(): number {
    return this.#connections.size;
  }

  add(connection: PacedConnection): void {
    this.#connections.add(connection);
    if (this.rate.isPaused) connection.setPaused('rate', true);
  }

  remove(connection: PacedConnection, unreadBytes: number): void {
    this.#connections.delete(connection);
    this.release(unreadBytes);
  }

  /** Counts bytes that are about to be sent. Returns false, and counts nothing, if there is no room for them. */
  take(bytes: number, kind: SendKind): boolean {
    if (kind !== 'must') {
      const max = kind === 'progress' ? outboundOfWorkerMax / 2 : outboundOfWorkerMax;
      if (this.#unreadBytes + bytes > max || this.#outbound.bytes + bytes > outboundMax) return false;
    }
    this.#unreadBytes += bytes;
    this.#outbound.bytes += bytes;
    return true;
  }

  release(bytes: number): void {
    this.#unreadBytes -= bytes;
    this.#outbound.bytes -= bytes;
  }
}
