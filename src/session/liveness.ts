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
  readonly misses: number;
}

export const defaultLiveness: LivenessPlan = { quietMs: 30_000, probeTimeoutMs: 5_000, misses: 3 };

export interface LivenessSubject {
  owed(): number;
  lastHeardAtMs(): number;
  /** Resolves when anything came back, rejects when nothing did by the deadline. */
  probe(deadlineAtMs: number): Promise<void>;
  /** Told once. */
  dead(misses: number): void;
}

export class Liveness {
  readonly #plan: LivenessPlan;
  readonly #clock: Clock;
  readonly #subject: LivenessSubject;
  #cancel: Cancel | undefined;
  #probing = false;
  #stopped = false;

  constructor(plan: LivenessPlan, clock: Clock, subject: LivenessSubject) {
    this.#plan = plan;
    this.#clock = clock;
    this.#subject = subject;
  }

  /** A request went out. Costs nothing while the watch is on already. */
  owing(): void {
    if (this.#cancel || this.#probing || this.#stopped) return;
    this.#watchUntil(this.#clock.nowMs() + this.#plan.quietMs);
  }

  stop(): void {
    this.#stopped = true;
    this.#cancel?.();
  }

  #watchUntil(atMs: number): void {
    this.#cancel = this.#clock.at(atMs, () => {
      this.#cancel = undefined;
      this.#look();
    });
  }

  #look(): void {
    if (this.#stopped || this.#subject.owed() === 0) return;
    const quietUntilMs = this.#subject.lastHeardAtMs() + this.#plan.quietMs;
    if (quietUntilMs > this.#clock.nowMs()) return this.#watchUntil(quietUntilMs);
    this.#probing = true;
    void this.#ask(1);
  }

  async #ask(attempt: number): Promise<void> {
    const askedAtMs = this.#clock.nowMs();
    const answered = await this.#subject.probe(askedAtMs + this.#plan.probeTimeoutMs).then(
      () => true,
      () => this.#subject.lastHeardAtMs() > askedAtMs,
    );
    if (this.#stopped) return;
    if (!answered && attempt < this.#plan.misses) return this.#ask(attempt + 1);
    this.#probing = false;
    if (answered) return this.owing();
    this.stop();
    this.#subject.dead(attempt);
  }
}
