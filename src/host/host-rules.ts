/**
 * What the configuration says beyond single servers — roles, ceilings, groups — joined with the embedder's own guards.
 * Not here: reading it (config/host-config.ts), asking the guards (policy/allowlist.ts).
 *
 * Invariant: the embedder's guards come on top of the configured roles and never replace them.
 */
import type { HostSettings } from '../config/host-config.js';
import { type Guard, noRoles, roleGuard } from '../policy/allowlist.js';
import type { CallCeilings } from '../policy/call-budget.js';
import { embedder } from './host-interface.js';

export class HostRules {
  #configured: Guard = noRoles;
  #guards: readonly Guard[] = [noRoles];
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
    this.#guards = [this.#configured, ...this.#guards.slice(1)];
  }

  setOwn(guards: readonly Guard[]): void {
    this.#guards = [this.#configured, ...guards];
  }
}

function configuredGuard({ roles, unlistedRole }: HostSettings): Guard {
  if (unlistedRole === undefined) return noRoles;
  const guard = roleGuard(roles ?? new Map(), unlistedRole);
  // Who holds the host could as well change its rules: it is under no role. The object itself is meant, not its likeness.
  return (request) => (request.principal === embedder ? { allow: true } : guard(request));
}
