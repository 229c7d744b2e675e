/**
 * Removes claims and replies from their streams when nobody can ask for them any more. What is not removed (its host died, or
 * there is too much of it) the server removes by age.
 *
 * Invariants: nothing goes before its time; removing waits for calls, never calls for removing.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';

export interface Sweep {
  readonly stream: string;
  readonly seq: number;
}

type Remove = (sweep: Sweep) => Promise<unknown>;

/** Of one second, in which everything that ends is removed together. */
const slotMs = 1_000;
const sweepsMax = 500_000;
/** Removals under way at a time. */
const atOnce = 16;

export class NatsSweeper {
  readonly #clock: Clock;
  readonly #remove: Remove;
  readonly #slots = new Map<number, Sweep[]>();
  #count = 0;
  #timer: Cancel | undefined;
  #timerSlot = Number.POSITIVE_INFINITY;
  #isSweeping = false;

  constructor(clock: Clock, remove: Remove) {
    this.#clock = clock;
    this.#remove = remove;
  }

  get size(): number {
    return this.#count;
  }

  /** `until` on the wall. */
  add(sweep: Sweep, until: Date): void {
    if (this.#count >= sweepsMax) return;
    this.#count++;
    const dueMs = this.#clock.nowMs() + Math.max(0, until.getTime() - this.#clock.date().getTime());
    const slot = Math.ceil(dueMs / slotMs);
    const slots = this.#slots.get(slot);
    if (slots !== undefined) slots.push(sweep);
    else {
      this.#slots.set(slot, [sweep]);
      if (slot < this.#timerSlot) this.#arm(slot);
    }
  }

  stop(): void {
    this.#timer?.();
    this.#timer = undefined;
    this.#timerSlot = Number.POSITIVE_INFINITY;
    this.#slots.clear();
    this.#count = 0;
  }

  #arm(slot: number): void {
    this.#timer?.();
    this.#timerSlot = slot;
    this.#timer = this.#clock.at(slot * slotMs, () => void this.#sweep());
  }

  async #sweep(): Promise<void> {
    this.#timer = undefined;
    this.#timerSlot = Number.POSITIVE_INFINITY;
    if (this.#isSweeping) return;
    this.#isSweeping = true;
    const nowSlot = this.#clock.nowMs() / slotMs;
    for (const [slot, sweeps] of this.#slots) {
      if (slot > nowSlot) continue;
      this.#slots.delete(slot);
      this.#count -= sweeps.length;
      for (let at = 0; at < sweeps.length; at += atOnce)
        // One that fails is left to the server.
        await Promise.allSettled(sweeps.slice(at, at + atOnce).map(this.#remove));
    }
    this.#isSweeping = false;
    let next = Number.POSITIVE_INFINITY;
    for (const slot of this.#slots.keys()) if (slot < next) next = slot;
    if (next !== Number.POSITIVE_INFINITY) this.#arm(next);
  }
}
