/**
 * What the configuration says beyond single servers — roles, ceilings, groups — joined with the embedder's own guards.
 * Not here: reading it (config/host-config.ts), asking the guards (policy/allowlist.ts).
 *
 * Invariants: the embedder's guards come on top of the configured roles and never replace them; nobody but the embedder goes
 * by its id, under which answers are kept and calls are counted; rules of one configuration never hold for a server as another
 * configuration defined it.
 */
import type { HostSettings } from '../config/host-config.js';
import type { ToolRules } from '../config/tool-rules.js';
import { type Guard, noRoles, roleGuard } from '../policy/allowlist.js';
import type { CallCeilings } from '../policy/call-budget.js';
import { toolRulesGuard } from '../policy/tool-rules-guard.js';
import { embedder } from './host-interface.js';

export class HostRules {
  /** Comes before the embedder's own. */
  #configured = forOthers(noRoles);
  #own: readonly Guard[] = [];
  /** For everybody, the embedder too. */
  readonly #ofTools: Guard;
  #guards: readonly Guard[];
  #ceilings: CallCeilings = { principals: new Map(), roles: new Map() };
  #groups: HostSettings['groups'] = new Map();
  /** Servers whose definition is about to be the one of these rules. */
  readonly #changing = new Set<string>();
  #listedRoles: HostSettings['roles'];
  #unlistedRole: HostSettings['unlistedRole'];
  #revision = 0;

  /** Counts up with every change. */
  get revision(): number {
    return this.#revision;
  }

  constructor(toolRulesOf: (server: string) => ToolRules | undefined) {
    this.#ofTools = toolRulesGuard(toolRulesOf);
    this.#guards = [this.#ofTools, this.#configured];
  }

  get ceilings(): CallCeilings {
    return this.#ceilings;
  }

  get groups(): HostSettings['groups'] {
    return this.#groups;
  }

  /** All that hold now: asked for with every call. */
  get guards(): readonly Guard[] {
    return this.#guards;
  }

  /** A caller in this role may use nothing, because the configuration does not list the role. */
  isUnlisted(role: string): boolean {
    return this.#unlistedRole !== 'allow' && !this.#listedRoles?.has(role);
  }

  /**
   * `changing`: servers that still have the definition of an earlier configuration. The new rules were not written for them, so
   * nobody may use them until `changed` says that they have the new definition, or are gone.
   */
  configure({ roles, unlistedRole, budgets, groups }: HostSettings, changing: Iterable<string> = []): void {
    this.#changing.clear();
    for (const server of changing) this.#changing.add(server);
    this.#listedRoles = roles;
    this.#unlistedRole = unlistedRole;
    this.#configured = forOthers(unlistedRole === undefined ? noRoles : roleGuard(roles ?? new Map(), unlistedRole));
    this.#ceilings = budgets;
    this.#groups = groups;
    this.setOwn(this.#own);
  }

  changed(server: string): void {
    // The guard is there only while a server changes: calls are not asked one more question for it.
    if (this.#changing.delete(server) && this.#changing.size === 0) this.setOwn(this.#own);
  }

  setOwn(guards: readonly Guard[]): void {
    this.#own = guards;
    const all = [this.#ofTools, this.#configured, ...guards];
    this.#guards = this.#changing.size === 0 ? all : [this.#notChanging, ...all];
    this.#revision++;
  }

  readonly #notChanging: Guard = ({ server }) => (this.#changing.has(server) ? isChanging : allowed);
}

const allowed = { allow: true } as const;
const isChanging = {
  allow: false,
  reason: 'its entry in the configuration is being changed',
  hint: 'try again in a moment',
} as const;
const impostor = { allow: false, reason: `the id '${embedder.id}' is reserved` } as const;

/**
 * Who holds the host could as well change its rules: it is under no role, and the first to be asked about. The object itself
 * is meant, not its likeness.
 */
const forOthers =
  (guard: Guard): Guard =>
  (request) => {
    const { principal } = request;
    if (principal === embedder) return allowed;
    return principal.id === embedder.id ? impostor : guard(request);
  };
