/**
 * Limits how many servers start per second and at once, first come, first served. Without the gate, a hundred servers that
 * fail together would be started together. `startGates` makes the gates of a host: restarts after a failure have a fixed rate,
 * other starts of processes follow the load of the machine (start-pace.ts), and connections over HTTP start no process.
 * Not here: the time of a restart (server-state.ts).
 *
 * Invariants: within any second at most `startsPerSecond` starts begin. A withdrawn start uses no slot. A hanging start
 * occupies its slot for at most `slotMs`, so dead servers cannot block healthy ones.
 */
import { availableParallelism } from 'node:os';
import { type Cancel, type Clock, systemClock } from '../kernel/clock.js';
import { paceMs, StartPace, steadyLoad, systemLoad } from './start-pace.js';

export interface StartGateOptions {
  readonly startsPerSecond?: number;
  /** Concurrent starts; default: twice the number of cores. */
  readonly concurrent?: number | StartPace;
  readonly slotMs?: number;
}

interface StartRequest {
  /** The server failed before, and was not proven since. */
  readonly isRestart?: boolean;
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
  readonly #concurrent: number | StartPace;
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
    if (this.#queue.size + this.#running === 0 && typeof this.#concurrent !== 'number') this.#concurrent.reset();
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
        const nowMs = this.#clock.nowMs();
        if (this.#isFull()) {
          if (typeof this.#concurrent !== 'number')
            this.#cancelTimer = this.#clock.at(nowMs + paceMs, () => this.#look());
          break;
        }
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

  #isFull(): boolean {
    return this.#running >= (typeof this.#concurrent === 'number' ? this.#concurrent : this.#concurrent.concurrent);
  }

  #look(): void {
    if (typeof this.#concurrent !== 'number') this.#concurrent.look();
    this.#admit();
  }

  #begin(request: StartRequest, nowMs: number): void {
    if (Number.isFinite(this.#startsPerSecond)) this.#beganAtMs.push(nowMs);
    if (this.#beganAtMs.length > this.#startsPerSecond) this.#beganAtMs.shift();
    this.#running++;
    let isOver = false;
    const done = () => {
      if (isOver) return;
      isOver = true;
      cancelSlot();
      this.#running--;
      if (typeof this.#concurrent !== 'number') this.#concurrent.ended(this.#clock.nowMs() - nowMs);
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

/** Bound of connections over HTTP that are opened at once. */
const connectionsMax = 256;
/** A start that takes longer most likely waits without using a processor, so another one may begin. */
const pacedSlotMs = 3_000;

export function startGates(clock: Clock): { readonly processes: Gate; readonly connections: Gate } {
  const restarts = new StartGate(clock);
  const unlimited = { startsPerSecond: Number.POSITIVE_INFINITY };
  // With a simulated clock, the load of the machine is simulated too.
  const pace = new StartPace(clock === systemClock ? systemLoad() : steadyLoad);
  const starts = new StartGate(clock, { ...unlimited, concurrent: pace, slotMs: pacedSlotMs });
  return {
    processes: { enter: (request) => (request.isRestart ? restarts : starts).enter(request) },
    connections: new StartGate(clock, { ...unlimited, concurrent: connectionsMax }),
  };
}

/** A gate that queues a request only after `gone`, the end of the server that had the name before. */
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
