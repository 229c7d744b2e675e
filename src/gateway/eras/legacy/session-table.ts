/**
 * The table of legacy sessions: found by id and owner, bounded in number, ended when unused.
 *
 * Invariants:
 * - A session answers only to the principal and at the endpoint it was opened with; for all others it does not exist.
 * - When the table is full, the least recently used session is evicted. A session with an open request or stream is not.
 * - A session that is being opened is not evicted during its grace time: its client is about to send `initialized`.
 * - For a principal that holds half of the table, only one of its own sessions is evicted. When it holds more than half and no
 *   other session can be evicted, its opening sessions, and then those in use, are evicted for other principals. So a client that
 *   opens sessions or streams without end locks out only itself.
 * - An unused session ends after `sessionIdleMs`, and after `crowdedIdleMs` while more than half of the table is taken.
 */
import type { Cancel, Clock } from '../../../kernel/clock.js';
import type { Principal } from '../../../policy/operation.js';
import { type EndpointId, endpointKey } from '../../endpoint-id.js';
import type { PrincipalNow } from '../../exchange.js';
import type { HttpLimits } from '../../http/http-limits.js';
import type { LegacySession } from './http-session.js';

/** Sweeps within `sessionIdleMs`. */
const sweepsPerIdle = 30;

export class SessionTable {
  readonly #clock: Clock;
  readonly #limits: HttpLimits;
  readonly #sessions = new Map<string, LegacySession>();
  readonly #byPrincipal = new Map<string, PrincipalSessions>();
  #cancelSweep: Cancel | undefined;
  /** One for all: a listener of its own would cost each session as much as all else of it. */
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

  /** Takes a session whose `initialize` is about to be answered. False: the table is full and no session can be evicted. */
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

  rekeyed(now: PrincipalNow): void {
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

  /** Ends their streams only; open requests go on. */
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

  /** The session to evict of a principal that holds more than half of the table, if there is such a principal. */
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
  /** By the time they were admitted. */
  readonly #opening = new Set<LegacySession>();
  /** By the time of their last use. */
  readonly #unused = new Set<LegacySession>();
  /** All sessions of this principal, in the order they were admitted. */
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

  /** The session was used: from now on it is the newest of the unused ones, or in use. */
  touched(session: LegacySession): void {
    this.#opening.delete(session);
    this.#unused.delete(session);
    if (session.idleSinceMs !== undefined) this.#unused.add(session);
  }

  /** The session unused for longest. A session that is being opened counts only after its grace time. */
  oldestUnused(nowMs: number): LegacySession | undefined {
    const unused = this.#oldestIdle();
    const [opening] = this.#opening;
    if (!opening || opening.usedAtMs > nowMs - this.#graceMs) return unused;
    return unused && unused.usedAtMs <= opening.usedAtMs ? unused : opening;
  }

  /** Where none is unused: the session that has been opening for longest, whatever its grace time, else the oldest in use. */
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
