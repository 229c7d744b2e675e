/**
 * The legacy sessions there are: found by id and owner, bounded in number, ended when nobody uses them.
 * Invariants: a session answers only to the principal and at the endpoint it was opened with; to all others it does not
 * exist. One that was never finished opening goes before one that was, and the longest idle before others.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import type { Principal } from '../../policy/call.js';
import { type EndpointId, endpointKey } from '../endpoint-id.js';
import type { HttpLimits } from './http-limits.js';
import type { LegacySession } from './legacy-session.js';

/** Looks at idle sessions this many times within the time they have. */
const sweepsPerIdle = 30;

export class LegacySessions {
  readonly #clock: Clock;
  readonly #limits: HttpLimits;
  readonly #sessions = new Map<string, LegacySession>();
  #cancelSweep: Cancel | undefined;

  constructor(clock: Clock, limits: HttpLimits) {
    this.#clock = clock;
    this.#limits = limits;
  }

  get size(): number {
    return this.#sessions.size;
  }

  find(id: string, principal: Principal, endpoint: EndpointId): LegacySession | undefined {
    const session = this.#sessions.get(id);
    if (!session || session.principal.id !== principal.id) return undefined;
    return endpointKey(session.endpoint) === endpointKey(endpoint) ? session : undefined;
  }

  /** False: there are as many as there may be, and all are in use. */
  admit(session: LegacySession): boolean {
    if (this.#sessions.size >= this.#limits.sessions && !this.#endOne()) return false;
    this.#sessions.set(session.id, session);
    this.#cancelSweep ??= this.#sweepLater();
    return true;
  }

  end(session: LegacySession): void {
    this.#sessions.delete(session.id);
    session.end();
  }

  endAll(): void {
    for (const session of [...this.#sessions.values()]) this.end(session);
    this.#cancelSweep?.();
    this.#cancelSweep = undefined;
  }

  /** Their streams only; what is open is waited for. */
  endStreams(): void {
    for (const session of this.#sessions.values()) session.own.end();
  }

  #endOne(): boolean {
    let found: LegacySession | undefined;
    for (const session of this.#sessions.values()) {
      if (session.idleSinceMs === undefined) continue;
      if (!found || goesBefore(session, found)) found = session;
    }
    if (found) this.end(found);
    return found !== undefined;
  }

  #sweepLater(): Cancel {
    return this.#clock.at(this.#clock.nowMs() + this.#limits.sessionIdleMs / sweepsPerIdle, () => this.#sweep());
  }

  #sweep(): void {
    const idleBeforeMs = this.#clock.nowMs() - this.#limits.sessionIdleMs;
    for (const session of [...this.#sessions.values()]) {
      const { idleSinceMs } = session;
      if (idleSinceMs !== undefined && idleSinceMs <= idleBeforeMs) this.end(session);
    }
    this.#cancelSweep = this.#sessions.size > 0 ? this.#sweepLater() : undefined;
  }
}

function goesBefore(one: LegacySession, other: LegacySession): boolean {
  if (one.isInitialized !== other.isInitialized) return !one.isInitialized;
  return (one.idleSinceMs ?? 0) < (other.idleSinceMs ?? 0);
}
