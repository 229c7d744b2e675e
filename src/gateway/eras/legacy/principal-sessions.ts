/**
 * The legacy sessions of one principal, ordered by their last use, so that the one to evict is found without a search.
 * Not here: when a session is evicted (session-table.ts).
 *
 * Invariants: a session is opening (its `initialize` was answered and nothing was heard since), unused, or in use. A session in
 * `#unused` may be in use again: the search removes it there, and its next `touched` adds it again. Each removal undoes one
 * `touched`, so finding the oldest session costs O(1) on average.
 */
import type { LegacySession } from './http-session.js';

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
