/**
 * Rules of a configuration that are not part of one server (roles, budgets, groups), combined with the embedder's guards.
 * Not here: parsing (config/host-config.ts), calling the guards (policy/allowlist.ts).
 *
 * Invariants: the embedder's guards add to the configured roles and never replace them. Only the embedder uses its id, which is
 * part of cache keys and budgets. Rules of one configuration never apply to a server definition of another configuration.
 */
import { isDeepStrictEqual } from 'node:util';
import type { HostSettings } from '../config/host-config.js';
import type { ToolRules } from '../config/tool-rules.js';
import { type Guard, noRoles, roleGuard, toolRulesGuard } from '../policy/allowlist.js';
import { embedder, type Principal } from '../policy/operation.js';
import type { RateLimits } from '../policy/rate-limit.js';

/** Servers with a definition of an earlier configuration, which the new rules were not written for. */
export interface StaleServers {
  /** Servers that are about to change or end: every use is refused until `changed` is called. */
  readonly changing?: readonly string[];
  /**
   * Servers with an invalid new entry, which continue with their old definition. If roles or keys change too, only the embedder
   * may use them: the invalid entry might have denied more.
   */
  readonly outdated?: readonly string[];
}

export class HostRules {
  /** Runs before the guards of the embedder. */
  #configured = exemptEmbedder(noRoles);
  #own: readonly Guard[] = [];
  /** Applies to every caller, including the embedder. */
  readonly #toolRules: Guard;
  #guards: readonly Guard[];
  #rateLimits: RateLimits = { principals: new Map(), roles: new Map() };
  #groups: HostSettings['groups'] = new Map();
  /** Servers that have not yet got the definition that belongs to these rules. */
  readonly #changing = new Set<string>();
  /** Servers that only the embedder may use, because their entry is out of date. */
  readonly #closed = new Set<string>();
  #settings: HostSettings | undefined;
  #sameRules: ReadonlyMap<string, string> = new Map();
  #revision = 0;

  get revision(): number {
    return this.#revision;
  }

  constructor(toolRulesOf: (server: string) => ToolRules | undefined) {
    this.#toolRules = toolRulesGuard(toolRulesOf);
    this.#guards = [this.#toolRules, this.#configured];
  }

  get rateLimits(): RateLimits {
    return this.#rateLimits;
  }

  get groups(): HostSettings['groups'] {
    return this.#groups;
  }

  /** True if roles or guards of the embedder may show callers different things. */
  get hasRoles(): boolean {
    return this.#settings?.unlistedRole !== undefined || this.#own.length > 0;
  }

  /** All current guards; read for every call. */
  get guards(): readonly Guard[] {
    return this.#guards;
  }

  /**
   * Principals with the same key have the same rights until `revision` changes. Configured roles use only the role; guards of
   * the embedder may use every field of a principal.
   */
  accessKey(principal: Principal): string {
    const { id, role, scopes } = principal;
    if (principal === embedder) return 'embedder';
    if (this.#own.length > 0 || id === embedder.id) return `p${JSON.stringify([id, role, scopes])}`;
    if (role === undefined) return 'none';
    const first = this.#sameRules.get(role);
    return first === undefined ? 'unlisted' : `r${first}`;
  }

  /** True if callers with this role are refused because the configuration does not list it. */
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
    this.#configured = exemptEmbedder(
      unlistedRole === undefined ? noRoles : roleGuard(roles ?? new Map(), unlistedRole),
    );
    this.#sameRules = unlistedRole === undefined ? new Map() : sameRules(roles ?? new Map());
    this.#rateLimits = budgets;
    this.#groups = groups;
    this.setOwn(this.#own);
    return closed;
  }

  /**
   * Returns the newly closed servers: none if roles and keys are unchanged, because an old definition then gives no caller new
   * rights.
   */
  #close(outdated: readonly string[], { roles, unlistedRole, keys }: HostSettings): string[] {
    const { roles: was, unlistedRole: wasUnlisted, keys: had } = this.#settings ?? {};
    const isSame = isDeepStrictEqual([was, wasUnlisted, had], [roles, unlistedRole, keys]);
    const stillClosed = outdated.filter((server) => this.#closed.has(server));
    const closed = isSame ? [] : outdated.filter((server) => !this.#closed.has(server));
    this.#closed.clear();
    for (const server of [...stillClosed, ...closed]) this.#closed.add(server);
    return closed;
  }

  /** The new revision makes views show this server, even while other servers are still changing. */
  changed(server: string): void {
    if (this.#changing.delete(server)) this.setOwn(this.#own);
  }

  setOwn(guards: readonly Guard[]): void {
    this.#own = guards;
    const all = [this.#toolRules, this.#configured, ...guards];
    // The check is added only while a server is stale, so that other calls do not pay for it.
    this.#guards = this.#changing.size + this.#closed.size === 0 ? all : [this.#notStale, ...all];
    this.#revision++;
  }

  readonly #notStale: Guard = ({ server, principal }) => {
    if (this.#changing.has(server)) return isChanging;
    return this.#closed.has(server) && principal !== embedder ? isOutdated : allowed;
  };
}

/** Maps each role to the first role with the same rules. */
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
const reservedId = { allow: false, reason: `the id '${embedder.id}' is reserved` } as const;

/** Always allows the embedder, which could change the rules anyway. Compares by identity: other callers may copy its fields. */
const exemptEmbedder =
  (guard: Guard): Guard =>
  (request) => {
    const { principal } = request;
    if (principal === embedder) return allowed;
    return principal.id === embedder.id ? reservedId : guard(request);
  };
