/**
 * Notices a server that runs but no longer answers.
 *
 * A server that does one thing at a time answers no ping while it works. So silence counts only after a request was given up
 * without an answer, and only once the server has had all the time it was allowed: while a request is under way, which is
 * always younger than its own timeout, nothing is asked and nothing is ended. An idle server is left alone.
 * Any answer to the question is a sign of life, an error too: some servers know no `ping`.
 */
import type { Cancel, Clock } from '../kernel/clock.js';

export interface LivenessPlan {
  /** Silence, after a request was given up, before we ask. */
  readonly quietMs: number;
  readonly probeTimeoutMs: number;
  /** Questions in a row that may stay unanswered. */
  readonly missesMax: number;
}

export const defaultLiveness: LivenessPlan = { quietMs: 30_000, probeTimeoutMs: 5_000, missesMax: 3 };

/** A request may have no deadline at all; once it is cancelled, its server is not waited for longer than this. */
const allowedMsMax = 10 * 60_000;

/** `unasked`: the question could not be put, which says nothing about the server. */
export type ProbeResult = 'alive' | 'silent' | 'unasked';

export interface LivenessSubject {
  /** Requests that wait for an answer, our own questions apart. Each is younger than its timeout: older ones are given up. */
  underway(): number;
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
  | { readonly kind: 'waiting'; readonly cancel: Cancel }
  | { readonly kind: 'asking' }
  | { readonly kind: 'stopped' };

export class Liveness {
  readonly #plan: LivenessPlan;
  readonly #clock: Clock;
  readonly #subject: LivenessSubject;
  #watch: Watch = { kind: 'off' };
  /** When the newest request without an answer was given up. */
  #givenUpAtMs = Number.NEGATIVE_INFINITY;
  /** The server may still be working on a request that was given up, until then. */
  #allowedUntilMs = Number.NEGATIVE_INFINITY;

  constructor(plan: LivenessPlan, clock: Clock, subject: LivenessSubject) {
    this.#plan = plan;
    this.#clock = clock;
    this.#subject = subject;
  }

  /** A request ended without an answer, by its deadline or by its caller; the server was allowed to take until `allowedUntilMs`. */
  gaveUp(allowedUntilMs: number): void {
    const nowMs = this.#clock.nowMs();
    if (this.#watch.kind === 'off') this.#allowedUntilMs = nowMs;
    this.#givenUpAtMs = nowMs;
    this.#allowedUntilMs = Math.max(this.#allowedUntilMs, Math.min(allowedUntilMs, nowMs + allowedMsMax));
    if (this.#watch.kind === 'off') this.#waitUntil(this.#dueAtMs(), 0);
  }

  stop(): void {
    if (this.#watch.kind === 'waiting') this.#watch.cancel();
    this.#watch = { kind: 'stopped' };
  }

  #dueAtMs(): number {
    return Math.max(this.#subject.lastHeardAtMs() + this.#plan.quietMs, this.#allowedUntilMs);
  }

  #waitUntil(atMs: number, misses: number): void {
    this.#watch = { kind: 'waiting', cancel: this.#clock.at(atMs, () => this.#look(misses)) };
  }

  #look(misses: number): void {
    if (this.#subject.lastHeardAtMs() > this.#givenUpAtMs) return this.#heard(misses);
    const nowMs = this.#clock.nowMs();
    const dueAtMs = this.#dueAtMs();
    if (dueAtMs > nowMs) this.#waitUntil(dueAtMs, misses);
    else if (this.#subject.underway() > 0) this.#waitUntil(nowMs + this.#plan.probeTimeoutMs, misses);
    else {
      this.#watch = { kind: 'asking' };
      void this.#ask(nowMs, misses);
    }
  }

  async #ask(askedAtMs: number, misses: number): Promise<void> {
    const nextAtMs = askedAtMs + this.#plan.probeTimeoutMs;
    const result = await this.#subject.probe(nextAtMs).catch(() => 'silent' as const);
    if (this.#watch.kind !== 'asking') return;
    if (result === 'alive' || this.#subject.lastHeardAtMs() > askedAtMs) return this.#heard(misses);
    // A call that came meanwhile may be what keeps the server from answering.
    const counts = result === 'silent' && this.#subject.underway() === 0;
    const missed = counts ? misses + 1 : misses;
    if (missed >= this.#plan.missesMax) {
      this.#watch = { kind: 'stopped' };
      return this.#subject.dead(missed);
    }
    // A refusal may come at once: the next question still waits its turn, or three of them would pass in a millisecond.
    this.#waitUntil(Math.max(nextAtMs, this.#clock.nowMs()), missed);
    if (misses === 0 && missed === 1) this.#subject.missed();
  }

  /** The next request that is given up starts the watch again. */
  #heard(misses: number): void {
    this.#watch = { kind: 'off' };
    if (misses > 0) this.#subject.answered();
  }
}
