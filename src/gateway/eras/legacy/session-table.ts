/**
 * The bounded table of legacy sessions.
 * Invariants:
 * - A session is found only for the principal and the endpoint that opened it.
 * - A full table evicts the session that is unused for longest. A session with an open request or GET stream is in use.
 * - An opening session (before its first use) is not evicted for `openingMs`: its client is about to send `initialized`.
 * - A principal with at least half of the table can evict only its own unused sessions.
 * - If no session is unused, other principals evict sessions of a principal with more than half of the table: opening ones
 *   first, then those in use. So a client that opens sessions or streams without end locks out only itself.
 * - An unused session ends after `sessionIdleMs`, or after `crowdedIdleMs` while the table is more than half full.
 */
import type { Cancel, Clock } from '../../../kernel/clock.js';
import type { Principal } from '../../../policy/operation.js';
import type { CurrentPrincipal } from '../../exchange.js';
import { type EndpointId, endpointKey } from '../../exchange.js';
import type { HttpLimits } from '../../http/http-limits.js';
import type { LegacySession } from './http-session.js';

/** Number of sweeps per `sessionIdleMs`. */
const sweepsPerIdle = 30;

export class SessionTable {
  readonly #clock: Clock;
  readonly #limits: HttpLimits;
  readonly #sessions = new Map<string, LegacySession>();
  readonly #byPrincipal = new Map<string, PrincipalSessions>();
  #cancelSweep: Cancel | undefined;
  /** One listener for the whole table: a listener per session would double the memory of a session. */
  onEnded: ((session: LegacySession) => void) | undefined;

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

  /** Must be called before `initialize` is answered. False: the table is full and no session can be evicted. */
  admit(session: LegacySession): boolean {
    const { id } = session.principal;
    if (this.size >= this.#limits.sessions && !this.#evictFor(id)) return false;
    const own = this.#byPrincipal.get(id) ?? new PrincipalSessions(this.#limits.openingMs);
    this.#byPrincipal.set(id, own);
    session.touch();
    session.onTouch = own;
    own.add(session);
    this.#sessions.set(session.id, session);
    this.#cancelSweep ??= this.#sweepLater();
    return true;
  }

  end(session: LegacySession): void {
    if (this.#sessions.delete(session.id)) this.#leave(session);
    session.end();
    this.onEnded?.(session);
  }

  keysChanged(now: CurrentPrincipal): void {
    for (const session of this.#sessions.values()) {
      const principal = now(session.principal);
      if (principal) session.principal = principal;
      else this.end(session);
    }
  }

  endAll(): void {
    for (const session of this.#sessions.values()) this.end(session);
    this.#cancelSweep?.();
    this.#cancelSweep = undefined;
  }

  /** Ends only the GET streams, not the open requests. */
  endStreams(): void {
    for (const session of this.#sessions.values()) session.own.end();
  }

  #leave(session: LegacySession): void {
    const { id } = session.principal;
    const own = this.#byPrincipal.get(id);
    session.onTouch = undefined;
    own?.delete(session);
    if (own?.count === 0) this.#byPrincipal.delete(id);
  }

  #evictFor(newcomer: string): boolean {
    const own = this.#byPrincipal.get(newcomer);
    const isOwnOnly = own !== undefined && own.count * 2 >= this.#limits.sessions;
    const evicted = isOwnOnly ? own.oldestUnused(this.#clock.nowMs()) : (this.#oldestUnused() ?? this.#oldestExcess());
    if (evicted) this.end(evicted);
    return evicted !== undefined;
  }

  #oldestUnused(): LegacySession | undefined {
    const nowMs = this.#clock.nowMs();
    let oldest: LegacySession | undefined;
    for (const sessions of this.#byPrincipal.values()) {
      const unused = sessions.oldestUnused(nowMs);
      if (unused && (!oldest || unused.usedAtMs < oldest.usedAtMs)) oldest = unused;
    }
    return oldest;
  }

  /** Undefined: no principal has more than half of the table. */
  #oldestExcess(): LegacySession | undefined {
    for (const sessions of this.#byPrincipal.values())
      if (sessions.count * 2 > this.#limits.sessions) return sessions.oldestOfAll();
    return undefined;
  }

  #sweepLater(): Cancel {
    return this.#clock.at(this.#clock.nowMs() + this.#limits.sessionIdleMs / sweepsPerIdle, () => this.#sweep());
  }

  #sweep(): void {
    const { sessions, sessionIdleMs, crowdedIdleMs } = this.#limits;
    const isCrowded = this.size * 2 > sessions;
    const idleBeforeMs = this.#clock.nowMs() - (isCrowded ? Math.min(crowdedIdleMs, sessionIdleMs) : sessionIdleMs);
    for (const session of this.#sessions.values()) {
      const { idleSinceMs } = session;
      if (idleSinceMs !== undefined && idleSinceMs <= idleBeforeMs) this.end(session);
    }
    this.#cancelSweep = this.size > 0 ? this.#sweepLater() : undefined;
  }
}

export class PrincipalSessions {
  readonly #graceMs: number;
  /** Sessions before their first use, in the order of admission. */
  readonly #opening = new Set<LegacySession>();
  /** Sessions in the order of their last use. Some may be in use again; `#oldestIdle` removes those. */
  readonly #unused = new Set<LegacySession>();
  /** All sessions of this principal, in the order of admission. */
  readonly #all = new Set<LegacySession>();

  constructor(graceMs: number) {
    this.#graceMs = graceMs;
  }

  get count(): number {
    return this.#all.size;
  }

  add(session: LegacySession): void {
    this.#all.add(session);
    this.#opening.add(session);
  }

  delete(session: LegacySession): void {
    this.#all.delete(session);
    this.#opening.delete(session);
    this.#unused.delete(session);
  }

  touched(session: LegacySession): void {
    this.#opening.delete(session);
    this.#unused.delete(session);
    if (session.idleSinceMs !== undefined) this.#unused.add(session);
  }

  /** The least recently used session. An opening session counts only after its grace time. */
  oldestUnused(nowMs: number): LegacySession | undefined {
    const unused = this.#oldestIdle();
    const [opening] = this.#opening;
    if (!opening || opening.usedAtMs > nowMs - this.#graceMs) return unused;
    return unused && unused.usedAtMs <= opening.usedAtMs ? unused : opening;
  }

  /** For a principal without unused sessions. Ignores the grace time of opening sessions. */
  oldestOfAll(): LegacySession | undefined {
    const [opening] = this.#opening;
    const [oldest] = this.#all;
    return opening ?? oldest;
  }

  #oldestIdle(): LegacySession | undefined {
    for (const session of this.#unused) {
      if (session.idleSinceMs !== undefined) return session;
      this.#unused.delete(session);
    }
    return undefined;
  }
}
