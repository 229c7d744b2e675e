/**
 * Detects, by probes, a server that runs but no longer answers.
 *
 * A server that does one thing at a time answers no probe while it works. So silence counts only after a request was given up
 * and the time allowed for that request is over. While a request is in flight, no probe is sent and nothing is decided: the
 * request has not timed out yet. An idle server is never probed.
 * Any answer to a probe counts, also an error: some servers do not know `ping`.
 */
import type { Cancel, Clock } from '../kernel/clock.js';
import type { HostError } from '../kernel/errors.js';

export const defaultLiveness = {
  /** Silence after a request was given up, before the first probe. */
  quietMs: 30_000,
  probeTimeoutMs: 5_000,
  /** Unanswered probes in a row that end the connection. */
  missesMax: 3,
};
export type LivenessPlan = Readonly<typeof defaultLiveness>;

/** Upper bound of the time allowed for a cancelled request, which may have had no deadline. */
const allowedMsMax = 10 * 60_000;

/** `unasked`: the probe was not sent, so the server is neither alive nor silent. */
export type ProbeResult = 'alive' | 'silent' | 'unasked';

/** `isUnread`: the server is behind a pipe and has read nothing since the probe, not even earlier requests. */
export function failedProbe({ code, details }: HostError, isUnread: boolean): ProbeResult {
  const isQueued = details.phase === 'queued';
  // An unreadable answer is also a sign of life. The status of an unsent probe belongs to an earlier request.
  if ((details.httpStatus !== undefined && !isQueued) || details.phase === 'answered') return 'alive';
  const isUnsent = code === 'overloaded' || isQueued;
  if (!isUnsent || code === 'connect_failed') return 'silent';
  // Over HTTP an unsent probe may have waited for a connection. Over a pipe it can only have waited for the server to read.
  return code === 'timeout' && isUnread ? 'silent' : 'unasked';
}

interface LivenessSubject {
  /** Requests in flight, without probes. Each is younger than its timeout. */
  inFlight(): number;
  lastMessageAtMs(): number;
  probe(deadlineAtMs: number): Promise<ProbeResult>;
  /** Called when the first probe in a row was not answered. */
  missed(): void;
  /** Called when a message arrived after a missed probe. */
  answered(): void;
  /** Called once. */
  dead(misses: number): void;
}

type Watch =
  | { readonly kind: 'off' }
  | { readonly kind: 'waiting'; readonly cancel: Cancel }
  | { readonly kind: 'probing' }
  | { readonly kind: 'stopped' };

export class Liveness {
  readonly #plan: LivenessPlan;
  readonly #clock: Clock;
  readonly #subject: LivenessSubject;
  #watch: Watch = { kind: 'off' };
  /** Time at which the newest unanswered request was given up. */
  #givenUpAtMs = Number.NEGATIVE_INFINITY;
  /** Until this time the server may still be working on a request that was given up. */
  #allowedUntilMs = Number.NEGATIVE_INFINITY;

  constructor(plan: LivenessPlan, clock: Clock, subject: LivenessSubject) {
    this.#plan = plan;
    this.#clock = clock;
    this.#subject = subject;
  }

  /** Call it when a request ended without an answer. The server may still work on it until `allowedUntilMs`. */
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
    return Math.max(this.#subject.lastMessageAtMs() + this.#plan.quietMs, this.#allowedUntilMs);
  }

  #waitUntil(atMs: number, misses: number): void {
    this.#watch = { kind: 'waiting', cancel: this.#clock.at(atMs, () => this.#check(misses)) };
  }

  #check(misses: number): void {
    if (this.#subject.lastMessageAtMs() > this.#givenUpAtMs) return this.#recovered(misses);
    const nowMs = this.#clock.nowMs();
    const dueAtMs = this.#dueAtMs();
    if (dueAtMs > nowMs) this.#waitUntil(dueAtMs, misses);
    else if (this.#subject.inFlight() > 0) this.#waitUntil(nowMs + this.#plan.probeTimeoutMs, misses);
    else {
      this.#watch = { kind: 'probing' };
      void this.#probe(nowMs, misses);
    }
  }

  async #probe(sentAtMs: number, misses: number): Promise<void> {
    const nextAtMs = sentAtMs + this.#plan.probeTimeoutMs;
    const result = await this.#subject.probe(nextAtMs).catch(() => 'silent' as const);
    if (this.#watch.kind !== 'probing') return;
    if (result === 'alive' || this.#subject.lastMessageAtMs() > sentAtMs) return this.#recovered(misses);
    // A call that began meanwhile may keep the server from answering.
    const counts = result === 'silent' && this.#subject.inFlight() === 0;
    const missed = counts ? misses + 1 : misses;
    if (missed >= this.#plan.missesMax) {
      this.#watch = { kind: 'stopped' };
      return this.#subject.dead(missed);
    }
    // A refusal may arrive at once: without a delay, three probes would fail within a millisecond.
    this.#waitUntil(Math.max(nextAtMs, this.#clock.nowMs()), missed);
    if (misses === 0 && missed === 1) this.#subject.missed();
  }

  /** The next request that is given up starts the watch again. */
  #recovered(misses: number): void {
    this.#watch = { kind: 'off' };
    if (misses > 0) this.#subject.answered();
  }
}
