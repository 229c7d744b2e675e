/**
 * The one gate that every start of the host passes, first come, first served: so many starts in any second, so many at
 * once. Without it, a hundred servers that fall together would be started together.
 * Not here: when a server is started again (server-state.ts).
 *
 * Invariants: any span of one second holds at most `startsPerSecond` starts; a start that is no longer wanted costs
 * nothing; whoever hangs in its start holds its place only for `slotMs`, so that a few dead servers cannot keep the
 * healthy ones waiting.
 */
import { availableParallelism } from 'node:os';
import type { Cancel, Clock } from '../kernel/clock.js';

export interface StartGateOptions {
  readonly startsPerSecond?: number;
  /** Starts under way at once; twice the cores unless told. */
  readonly concurrent?: number;
  /** A start that takes longer is waiting rather than working: it no longer counts. */
  readonly slotMs?: number;
}

export interface StartRequest {
  /** Asked when it is this one's turn. */
  isWanted(): boolean;
  /** Begins the start and says when it is over, either way; extra calls of `done` do nothing. */
  begin(done: () => void): void;
}

/** Begins a request at once or later. The result withdraws it: true if it had not begun. */
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
  /** When the newest starts began, oldest first; never more than `startsPerSecond`. */
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

  /** Begins now if there is room. The result withdraws the request: true if it had not begun. */
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
    // What begins may end, or ask for another start, in the same breath: the loop below sees it.
    if (this.#isAdmitting) return;
    this.#isAdmitting = true;
    this.#disarm();
    try {
      for (const request of this.#queue) {
        if (!request.isWanted()) {
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

/** The same gate, for one that must not start before another is gone. Until then it takes no place in the queue. */
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
