/**
 * Notices a server that still runs but no longer answers. Asks only while something is owed and nothing was heard for a
 * while, so an idle server is left alone and a slow one that reports progress is never suspected.
 * Any answer to the question counts, an error too: some servers know no `ping`.
 */
import type { Cancel, Clock } from '../kernel/clock.js';

export interface LivenessPlan {
  /** Silence, with something owed, after which we ask. */
  readonly quietMs: number;
  readonly probeTimeoutMs: number;
  /** Questions in a row that may stay unanswered. */
  readonly missesMax: number;
}

export const defaultLiveness: LivenessPlan = { quietMs: 30_000, probeTimeoutMs: 5_000, missesMax: 3 };

/** `unasked`: the question could not be put, which says nothing about the server. */
export type ProbeResult = 'alive' | 'silent' | 'unasked';

export interface LivenessSubject {
  owed(): number;
  lastHeardAtMs(): number;
  probe(deadlineAtMs: number): Promise<ProbeResult>;
  /** The first question in a row that stayed unanswered. */
  missed(): void;
  /** Something was heard after all. */
  answered(): void;
  /** Told once. */
  dead(misses: number): void;
}

type Watch =
  | { readonly kind: 'off' }
  | { readonly kind: 'waiting'; readonly cancel: Cancel; readonly misses: number }
  | { readonly kind: 'asking' }
  | { readonly kind: 'stopped' };

export class Liveness {
  readonly #plan: LivenessPlan;
  readonly #clock: Clock;
  readonly #subject: LivenessSubject;
  #watch: Watch = { kind: 'off' };

  constructor(plan: LivenessPlan, clock: Clock, subject: LivenessSubject) {
    this.#plan = plan;
    this.#clock = clock;
    this.#subject = subject;
  }

  /** A request went out. Costs nothing while the watch is on already. */
  owing(): void {
    if (this.#watch.kind === 'off') this.#waitUntil(this.#clock.nowMs() + this.#plan.quietMs, 0);
  }

  stop(): void {
    if (this.#watch.kind === 'waiting') this.#watch.cancel();
    this.#watch = { kind: 'stopped' };
  }

  #waitUntil(atMs: number, misses: number): void {
    this.#watch = { kind: 'waiting', misses, cancel: this.#clock.at(atMs, () => this.#look(misses)) };
  }

  #look(misses: number): void {
    const nowMs = this.#clock.nowMs();
    const quietUntilMs = this.#subject.lastHeardAtMs() + this.#plan.quietMs;
    if (this.#subject.owed() === 0) {
      this.#watch = { kind: 'off' };
    } else if (quietUntilMs > nowMs) {
      this.#waitUntil(quietUntilMs, 0);
      if (misses > 0) this.#subject.answered();
    } else {
      this.#watch = { kind: 'asking' };
      void this.#ask(nowMs, misses);
    }
  }

  async #ask(askedAtMs: number, misses: number): Promise<void> {
    const nextAtMs = askedAtMs + this.#plan.probeTimeoutMs;
    const result = await this.#subject.probe(nextAtMs).catch(() => 'silent' as const);
    if (this.#watch.kind !== 'asking') return;
    if (result === 'alive' || this.#subject.lastHeardAtMs() > askedAtMs) {
      this.#waitUntil(this.#clock.nowMs() + this.#plan.quietMs, 0);
      if (misses > 0) this.#subject.answered();
      return;
    }
    const missed = result === 'silent' ? misses + 1 : misses;
    if (missed >= this.#plan.missesMax) {
      this.#watch = { kind: 'stopped' };
      return this.#subject.dead(missed);
    }
    // A refusal may come at once: the next question still waits its turn, or three of them would pass in a millisecond.
    this.#waitUntil(Math.max(nextAtMs, this.#clock.nowMs()), missed);
    if (misses === 0 && missed === 1) this.#subject.missed();
  }
}
