/**
 * What the configuration says beyond single servers — roles, ceilings, groups — joined with the embedder's own guards.
 * Not here: reading it (config/host-config.ts), asking the guards (policy/allowlist.ts).
 *
 * Invariants: the embedder's guards come on top of the configured roles and never replace them; nobody but the embedder goes
 * by its id, under which answers are kept and calls are counted.
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
  #isConfigured = false;
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

  /** Whether roles of the configuration or guards of the embedder may show callers different things. */
  get hasRoles(): boolean {
    return this.#isConfigured || this.#own.length > 0;
  }

  /** All that hold now: asked for with every call. */
  get guards(): readonly Guard[] {
    return this.#guards;
  }

  configure({ roles, unlistedRole, budgets, groups }: HostSettings): void {
    this.#configured = forOthers(unlistedRole === undefined ? noRoles : roleGuard(roles ?? new Map(), unlistedRole));
    this.#isConfigured = unlistedRole !== undefined;
    this.#ceilings = budgets;
    this.#groups = groups;
    this.setOwn(this.#own);
  }

  setOwn(guards: readonly Guard[]): void {
    this.#own = guards;
    this.#guards = [this.#ofTools, this.#configured, ...guards];
    this.#revision++;
  }
}

const allowed = { allow: true } as const;
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
