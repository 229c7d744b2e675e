/**
 * Paces the bytes of one worker, in and out together, over all its connections. Bytes are counted after the fact, so a message larger
 * than the burst passes and is paid for afterwards. Nothing is dropped: the connections are paused.
 */
import type { Clock } from '../../kernel/clock.js';
import { burstMs } from './limits.js';

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
