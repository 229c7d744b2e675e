/**
 * Which logs of its servers each client wants. Legacy clients say it once for their session, modern ones with each request.
 * A server that is shared is told the most talkative level that any session asked for; each client then hears its own.
 * Not here: which call a log belongs to (the host).
 */
import { setBounded } from '../../kernel/bounded-map.js';
import type { Principal } from '../../policy/operation.js';
import { isMoreTalkative, type LogLevel } from '../messages/log-level.js';
import type { Upstreams } from '../upstreams.js';
import { offers } from '../views/view.js';

/** Far above the sessions there may be at once. */
const wishesMax = 10_000;

interface Wish {
  readonly level: LogLevel;
  readonly principal: Principal;
  readonly servers: ReadonlySet<string>;
}

export class LogLevels {
  readonly #upstreams: Upstreams;
  readonly #wishes = new Map<string, Wish>();
  /** What each server was told while it was ready. */
  readonly #told = new Map<string, LogLevel>();

  /** Sessions that see the same hand in the same list. */
  readonly #sets = new WeakMap<readonly string[], ReadonlySet<string>>();

  constructor(upstreams: Upstreams) {
    this.#upstreams = upstreams;
  }

  of(session: string): LogLevel | undefined {
    return this.#wishes.get(session)?.level;
  }

  set(session: string, level: LogLevel, principal: Principal, servers: readonly string[]): void {
    setBounded(this.#wishes, session, { level, principal, servers: this.#asSet(servers) }, wishesMax);
    for (const server of servers) this.#tell(server);
  }

  forget(session: string): void {
    this.#wishes.delete(session);
  }

  /** A server that starts anew knows nothing of what it was told before. */
  changed(server: string): void {
    const isReady = this.#upstreams.known(server)?.isReady ?? false;
    if (!isReady) this.#told.delete(server);
    else if (this.#wishes.size > 0) this.#tell(server);
  }

  #tell(server: string): void {
    const known = this.#upstreams.known(server);
    if (!known?.isReady || known.facts?.era !== 'legacy' || !offers(known, 'logging')) return;
    // What runs there is nobody's: clients have instances of their own, which are left to their own level.
    if (known.definition.isolation === 'per-client') return;
    const wish = this.#mostTalkative(server);
    if (!wish || this.#told.get(server) === wish.level) return;
    this.#told.set(server, wish.level);
    const params = `{"level":"${wish.level}"}`;
    // What a server makes of it is its own affair: each client's logs are sorted out here all the same.
    this.#upstreams.request(server, 'logging/setLevel', params, { principal: wish.principal }).catch(() => {
      this.#told.delete(server);
    });
  }

  #asSet(servers: readonly string[]): ReadonlySet<string> {
    const set = this.#sets.get(servers) ?? new Set(servers);
    this.#sets.set(servers, set);
    return set;
  }

  #mostTalkative(server: string): Wish | undefined {
    let found: Wish | undefined;
    for (const wish of this.#wishes.values()) {
      if (!wish.servers.has(server)) continue;
      if (!found || isMoreTalkative(wish.level, found.level)) found = wish;
    }
    return found;
  }
}
