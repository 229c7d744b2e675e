/**
 * Limits the starts of all servers per second and concurrently, first come, first served. Without it a hundred servers that
 * fail together would be started together.
 * Not here: the time of a restart (server-state.ts).
 *
 * Invariants: within any second at most `startsPerSecond` starts begin. A withdrawn start uses no slot. A hanging start
 * occupies its slot for at most `slotMs`, so dead servers cannot block healthy ones.
 */
import { availableParallelism } from 'node:os';
import type { Cancel, Clock } from '../kernel/clock.js';

export interface StartGateOptions {
  readonly startsPerSecond?: number;
  /** Concurrent starts; default: twice the number of cores. */
  readonly concurrent?: number;
  readonly slotMs?: number;
}

interface StartRequest {
  /** Called when a slot is free. False drops the request. */
  isStillNeeded(): boolean;
  /** Begins the start and calls `done` when it has succeeded or failed; extra calls have no effect. */
  begin(done: () => void): void;
}

/** Begins a request now or later. The returned function withdraws it: true if it had not begun. */
export interface Gate {
  enter(request: StartRequest): () => boolean;
}

export class StartGate implements Gate {
  readonly #clock: Clock;
  readonly #startsPerSecond: number;
  readonly #concurrent: number;
  readonly #slotMs: number;
  /** One entry per server at most. */
  readonly #queue = new Set<StartRequest>();
  /** Times of the newest starts, oldest first; at most `startsPerSecond`. */
  readonly #beganAtMs: number[] = [];
  #running = 0;
  #cancelTimer: Cancel | undefined;
  #isAdmitting = false;

  constructor(clock: Clock, options: StartGateOptions = {}) {
    this.#clock = clock;
    this.#startsPerSecond = options.startsPerSecond ?? 10;
    this.#concurrent = options.concurrent ?? 2 * availableParallelism();
    this.#slotMs = options.slotMs ?? 10_000;
  }

  get waiting(): number {
    return this.#queue.size;
  }

  get running(): number {
    return this.#running;
  }

  enter(request: StartRequest): () => boolean {
    this.#queue.add(request);
    this.#admit();
    return () => {
      const wasWaiting = this.#queue.delete(request);
      if (this.#queue.size === 0) this.#disarm();
      return wasWaiting;
    };
  }

  #admit(): void {
    // A start may end, or request another start, synchronously: the loop below handles it.
    if (this.#isAdmitting) return;
    this.#isAdmitting = true;
    this.#disarm();
    try {
      for (const request of this.#queue) {
        if (!request.isStillNeeded()) {
          this.#queue.delete(request);
          continue;
        }
        if (this.#running >= this.#concurrent) break;
        const nowMs = this.#clock.nowMs();
        const freeAtMs = this.#freeAtMs();
        if (nowMs < freeAtMs) {
          this.#cancelTimer = this.#clock.at(freeAtMs, () => this.#admit());
          break;
        }
        this.#queue.delete(request);
        this.#begin(request, nowMs);
      }
    } finally {
      this.#isAdmitting = false;
    }
  }

  #begin(request: StartRequest, nowMs: number): void {
    this.#beganAtMs.push(nowMs);
    if (this.#beganAtMs.length > this.#startsPerSecond) this.#beganAtMs.shift();
    this.#running++;
    let isOver = false;
    const done = () => {
      if (isOver) return;
      isOver = true;
      cancelSlot();
      this.#running--;
      this.#admit();
    };
    const cancelSlot = this.#clock.at(nowMs + this.#slotMs, done);
    request.begin(done);
  }

  #freeAtMs(): number {
    if (this.#beganAtMs.length < this.#startsPerSecond) return 0;
    return (this.#beganAtMs[0] ?? 0) + 1_000;
  }

  #disarm(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }
}

/** A gate that queues a request only after the predecessor of its server is gone. */
export const gateAfter = (gone: Promise<unknown>, gate: Gate): Gate => ({
  enter(request) {
    let isWithdrawn = false;
    let withdraw = () => {
      isWithdrawn = true;
      return true;
    };
    void gone.then(() => {
      if (!isWithdrawn) withdraw = gate.enter(request);
    });
    return () => withdraw();
  },
});
