/**
 * What the configuration says beyond single servers — roles, ceilings, groups — joined with the embedder's own guards.
 * Not here: reading it (config/host-config.ts), asking the guards (policy/allowlist.ts).
 *
 * Invariants: the embedder's guards come on top of the configured roles and never replace them; nobody but the embedder goes
 * by its id, under which answers are kept and calls are counted.
 */
import type { HostSettings } from '../config/host-config.js';
import { type Guard, noRoles, roleGuard } from '../policy/allowlist.js';
import type { CallCeilings } from '../policy/call-budget.js';
import { embedder } from './host-interface.js';

export class HostRules {
  #configured: Guard = noRoles;
  #guards: readonly Guard[] = [noImpostor, noRoles];
  #ceilings: CallCeilings = { principals: new Map(), roles: new Map() };
  #groups: HostSettings['groups'] = new Map();

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

  configure(settings: HostSettings): void {
    this.#configured = configuredGuard(settings);
    this.#ceilings = settings.budgets;
    this.#groups = settings.groups;
    this.#guards = [noImpostor, this.#configured, ...this.#guards.slice(fixedGuards)];
  }

  setOwn(guards: readonly Guard[]): void {
    this.#guards = [noImpostor, this.#configured, ...guards];
  }
}

/** Before the embedder's own. */
const fixedGuards = 2;

const allowed = { allow: true } as const;
const impostor = { allow: false, reason: `the id '${embedder.id}' is reserved` } as const;

/** The object itself is meant, not its likeness. */
const noImpostor: Guard = ({ principal }) =>
  principal.id === embedder.id && principal !== embedder ? impostor : allowed;

function configuredGuard({ roles, unlistedRole }: HostSettings): Guard {
  if (unlistedRole === undefined) return noRoles;
  const guard = roleGuard(roles ?? new Map(), unlistedRole);
  // Who holds the host could as well change its rules: it is under no role.
  return (request) => (request.principal === embedder ? allowed : guard(request));
}
