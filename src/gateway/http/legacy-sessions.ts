/**
 * The legacy sessions there are: found by id and owner, bounded in number, ended when nobody uses them.
 * Invariants: a session answers only to the principal and at the endpoint it was opened with; to all others it does not
 * exist. One that was never finished opening goes before one that was, and the longest idle before others; but who has half
 * of all there may be makes room among its own.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import type { Principal } from '../../policy/call.js';
import { type EndpointId, endpointKey } from '../endpoint-id.js';
import type { PrincipalNow } from '../exchange.js';
import type { HttpLimits } from './http-limits.js';
import type { LegacySession } from './legacy-session.js';

/** Looks at idle sessions this many times within the time they have. */
const sweepsPerIdle = 30;

export class LegacySessions {
  readonly #clock: Clock;
  readonly #limits: HttpLimits;
  /** Each with the longest unused first. */
  readonly #unfinished = new Map<string, LegacySession>();
  readonly #finished = new Map<string, LegacySession>();
  #cancelSweep: Cancel | undefined;
  /** One for all: a listener of its own would cost each session as much as all else of it. */
  onEnded: ((session: LegacySession) => void) | undefined;

  constructor(clock: Clock, limits: HttpLimits) {
    this.#clock = clock;
    this.#limits = limits;
  }

  get size(): number {
    return this.#unfinished.size + this.#finished.size;
  }

  find(id: string, principal: Principal, endpoint: EndpointId): LegacySession | undefined {
    const session = this.#finished.get(id) ?? this.#unfinished.get(id);
    if (!session || session.principal.id !== principal.id) return undefined;
    return endpointKey(session.endpoint) === endpointKey(endpoint) ? session : undefined;
  }

  /** False: there are as many as there may be, and all are in use. */
  admit(session: LegacySession): boolean {
    if (this.size >= this.#limits.sessions && !this.#endOne(session.principal.id)) return false;
    this.#asNewest(session);
    session.onTouch = () => this.#asNewest(session);
    this.#cancelSweep ??= this.#sweepLater();
    return true;
  }

  end(session: LegacySession): void {
    session.onTouch = undefined;
    this.#forget(session);
    session.end();
    this.onEnded?.(session);
  }

  rekeyed(now: PrincipalNow): void {
    for (const session of this.#all()) {
      const principal = now(session.principal);
      if (principal) session.principal = principal;
      else this.end(session);
    }
  }

  endAll(): void {
    for (const session of this.#all()) this.end(session);
    this.#cancelSweep?.();
    this.#cancelSweep = undefined;
  }

  /** Their streams only; what is open is waited for. */
  endStreams(): void {
    for (const session of this.#all()) session.own.end();
  }

  #all(): LegacySession[] {
    return [...this.#unfinished.values(), ...this.#finished.values()];
  }

  #asNewest(session: LegacySession): void {
    this.#forget(session);
    (session.isInitialized ? this.#finished : this.#unfinished).set(session.id, session);
  }

  #forget({ id }: LegacySession): void {
    this.#unfinished.delete(id);
    this.#finished.delete(id);
  }

  #endOne(comer: string): boolean {
    const own = this.#all().filter(({ principal }) => principal.id === comer).length;
    const isOwnOnly = own * 2 >= this.#limits.sessions;
    for (const sessions of [this.#unfinished, this.#finished]) {
      for (const session of sessions.values()) {
        if (session.idleSinceMs === undefined || (isOwnOnly && session.principal.id !== comer)) continue;
        this.end(session);
        return true;
      }
    }
    return false;
  }

  #sweepLater(): Cancel {
    return this.#clock.at(this.#clock.nowMs() + this.#limits.sessionIdleMs / sweepsPerIdle, () => this.#sweep());
  }

  #sweep(): void {
    const idleBeforeMs = this.#clock.nowMs() - this.#limits.sessionIdleMs;
    for (const session of this.#all()) {
      const { idleSinceMs } = session;
      if (idleSinceMs !== undefined && idleSinceMs <= idleBeforeMs) this.end(session);
    }
    this.#cancelSweep = this.size > 0 ? this.#sweepLater() : undefined;
  }
}
