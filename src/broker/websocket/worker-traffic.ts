/**
 * What the connections of one worker share: the rate of their bytes, and the bytes that wait until the worker reads them. The waiting
 * bytes of all workers have a bound too.
 */
import type { Clock } from '../../kernel/clock.js';
import { burstMs, outboundMax, outboundOfEach, outboundOfWorkerMax } from './limits.js';

/**
 * Paces bytes, in and out together. They are counted after the fact, so a message larger than the burst passes, and a
 * pause follows. Nothing is dropped.
 */
export class ByteRate {
  readonly #clock: Clock;
  readonly #bytesPerMs: number;
  readonly #setPaused: (isPaused: boolean) => void;
  /** Time from which the rate allows further bytes. */
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
  /** The rate was reached, or there is room again. */
  pace(): void;
}

/** `must`: sent in any case. `progress`: may use half of the room, so that it does not delay replies. */
export type SendKind = 'must' | 'reply' | 'progress';

export interface WorkerTrafficParts {
  readonly clock: Clock;
  readonly bytesPerSecond: number;
  /** Bytes that wait to be read by all workers. */
  readonly outbound: { bytes: number };
  /** The worker has no connection, and used up no more than its rate. */
  idle(): void;
}

export class WorkerTraffic {
  readonly rate: ByteRate;
  readonly #parts: WorkerTrafficParts;
  readonly #connections = new Set<PacedConnection>();
  #unreadBytes = 0;

  constructor(parts: WorkerTrafficParts) {
    this.#parts = parts;
    this.rate = new ByteRate(parts.clock, parts.bytesPerSecond, () => {
      for (const connection of this.#connections) connection.pace();
      this.#noteIdle();
    });
  }

  get connections(): number {
    return this.#connections.size;
  }

  add(connection: PacedConnection): void {
    this.#connections.add(connection);
    connection.pace();
  }

  remove(connection: PacedConnection, unreadBytes: number): void {
    this.#connections.delete(connection);
    this.release(unreadBytes);
    this.#noteIdle();
  }

  /**
   * Counts bytes that are about to be sent. Returns false, and counts nothing, if there is no room for them. A worker may always have
   * `outboundOfEach` unread bytes. Beyond that it may have only as many as are still free, so workers that do not read leave room for the
   * others.
   */
  take(bytes: number, kind: SendKind): boolean {
    const { outbound } = this.#parts;
    const share = Math.max(outboundOfEach, Math.min(outboundOfWorkerMax, outboundMax - outbound.bytes));
    if (kind !== 'must' && this.#unreadBytes + bytes > (kind === 'progress' ? share / 2 : share)) return false;
    this.#unreadBytes += bytes;
    outbound.bytes += bytes;
    return true;
  }

  release(bytes: number): void {
    this.#unreadBytes -= bytes;
    this.#parts.outbound.bytes -= bytes;
  }

  /** A worker that connects again at once must not get a new rate. */
  #noteIdle(): void {
    if (this.#connections.size === 0 && !this.rate.isPaused) this.#parts.idle();
  }
}
