/**
 * What the configuration says beyond single servers — roles, rateLimits, groups — joined with the embedder's own guards.
 * Not here: reading it (config/host-config.ts), asking the guards (policy/allowlist.ts).
 *
 * Invariants: the embedder's guards come on top of the configured roles and never replace them; only the embedder has
 * its id, under which answers are cached and calls are counted; rules of one configuration never hold for a server as another
 * configuration defined it.
 */
import { isDeepStrictEqual } from 'node:util';
import type { HostSettings } from '../config/host-config.js';
import type { ToolRules } from '../config/tool-rules.js';
import { type Guard, noRoles, roleGuard, toolRulesGuard } from '../policy/allowlist.js';
import { embedder, type Principal } from '../policy/operation.js';
import type { RateLimits } from '../policy/rate-limit.js';

/** Servers that have the definition of an earlier configuration, for which the rules of the new one were not written. */
export interface StaleServers {
  /** About to be changed or removed: every use is refused until `changed` says that it is done. */
  readonly changing?: readonly string[];
  /**
   * Their new entry cannot be read, so that they stay as they were. When roles or keys change meanwhile, it is not known
   * what the entry would have denied: only the embedder may use them then.
   */
  readonly outdated?: readonly string[];
}

export class HostRules {
  /** Comes before the embedder's own. */
  #configured = forOthers(noRoles);
  #own: readonly Guard[] = [];
  /** For everybody, the embedder too. */
  readonly #ofTools: Guard;
  #guards: readonly Guard[];
  #rateLimits: RateLimits = { principals: new Map(), roles: new Map() };
  #groups: HostSettings['groups'] = new Map();
  /** Servers whose definition is about to be the one of these rules. */
  readonly #changing = new Set<string>();
  /** Servers that are out of date under these rules. */
  readonly #closed = new Set<string>();
  #settings: HostSettings | undefined;
  /** Role → the first role that has the same rules. */
  #sameRules: ReadonlyMap<string, string> = new Map();
  #revision = 0;

  /** Counts up with every change. */
  get revision(): number {
    return this.#revision;
  }

  constructor(toolRulesOf: (server: string) => ToolRules | undefined) {
    this.#ofTools = toolRulesGuard(toolRulesOf);
    this.#guards = [this.#ofTools, this.#configured];
  }

  get rateLimits(): RateLimits {
    return this.#rateLimits;
  }

  get groups(): HostSettings['groups'] {
    return this.#groups;
  }

  /** Whether roles of the configuration or guards of the embedder may show callers different things. */
  get hasRoles(): boolean {
    return this.#settings?.unlistedRole !== undefined || this.#own.length > 0;
  }

  /** All that hold now: asked for with every call. */
  get guards(): readonly Guard[] {
    return this.#guards;
  }

  /**
   * Principals with the same key are allowed the same, until `revision` changes. Configured roles look at the role alone; guards of
   * the embedder may look at everything about a principal.
   */
  accessKey(principal: Principal): string {
    const { id, role, scopes } = principal;
    if (principal === embedder) return 'embedder';
    if (this.#own.length > 0 || id === embedder.id) return `p${JSON.stringify([id, role, scopes])}`;
    if (role === undefined) return 'none';
    const first = this.#sameRules.get(role);
    return first === undefined ? 'unlisted' : `r${first}`;
  }

  /** A caller in this role may use nothing, because the configuration does not list the role. */
  isUnlisted(role: string): boolean {
    return this.#settings?.unlistedRole !== 'allow' && !this.#settings?.roles?.has(role);
  }

  /** Returns servers that only the embedder may use from now on, because their entry is out of date. */
  configure(settings: HostSettings, { changing = [], outdated = [] }: StaleServers = {}): string[] {
    const { roles, unlistedRole, budgets, groups } = settings;
    this.#changing.clear();
    for (const server of changing) this.#changing.add(server);
    const closed = this.#close(outdated, settings);
    this.#settings = settings;
    this.#configured = forOthers(unlistedRole === undefined ? noRoles : roleGuard(roles ?? new Map(), unlistedRole));
    this.#sameRules = unlistedRole === undefined ? new Map() : sameRules(roles ?? new Map());
    this.#rateLimits = budgets;
    this.#groups = groups;
    this.setOwn(this.#own);
    return closed;
  }

  /** Under the same roles and keys, a server that stays as it was gives no caller new rights. */
  #close(outdated: readonly string[], { roles, unlistedRole, keys }: HostSettings): string[] {
    const { roles: was, unlistedRole: wasUnlisted, keys: had } = this.#settings ?? {};
    const isSame = isDeepStrictEqual([was, wasUnlisted, had], [roles, unlistedRole, keys]);
    const stillClosed = outdated.filter((server) => this.#closed.has(server));
    const closed = isSame ? [] : outdated.filter((server) => !this.#closed.has(server));
    this.#closed.clear();
    for (const server of [...stillClosed, ...closed]) this.#closed.add(server);
    return closed;
  }

  changed(server: string): void {
    // The guard is there only while a server changes: calls are not asked one more question for it.
    if (this.#changing.delete(server) && this.#changing.size === 0) this.setOwn(this.#own);
  }

  setOwn(guards: readonly Guard[]): void {
    this.#own = guards;
    const all = [this.#ofTools, this.#configured, ...guards];
    this.#guards = this.#changing.size + this.#closed.size === 0 ? all : [this.#notStale, ...all];
    this.#revision++;
  }

  readonly #notStale: Guard = ({ server, principal }) => {
    if (this.#changing.has(server)) return isChanging;
    return this.#closed.has(server) && principal !== embedder ? isOutdated : allowed;
  };
}

/** Role → the first role that has the same rules. */
function sameRules(roles: NonNullable<HostSettings['roles']>): Map<string, string> {
  const firsts = new Map<string, string>();
  return new Map(
    [...roles].map(([role, patterns]) => {
      const rules = JSON.stringify(patterns.map(({ server, tool }) => JSON.stringify([server, tool])).sort());
      const first = firsts.get(rules) ?? role;
      firsts.set(rules, first);
      return [role, first];
    }),
  );
}

const allowed = { allow: true } as const;
const isChanging = {
  allow: false,
  reason: 'its entry in the configuration is being changed',
  hint: 'try again in a moment',
} as const;
const isOutdated = {
  allow: false,
  reason: 'its entry in the configuration cannot be read, and roles or keys have changed since',
  hint: 'ask the operator to correct the entry',
} as const;
const impostor = { allow: false, reason: `the id '${embedder.id}' is reserved` } as const;

/**
 * The embedder could change the rules anyway: it has no role, and is checked first. Compared by identity, not by its fields.
 */
const forOthers =
  (guard: Guard): Guard =>
  (request) => {
    const { principal } = request;
    if (principal === embedder) return allowed;
    return principal.id === embedder.id ? impostor : guard(request);
  };
