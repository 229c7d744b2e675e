/**
 * What each role sees: the tools of all servers that it may call, kept as the bytes of the reply until something changes.
 * Not here: whether a call may be made (the host decides, at each call), who is told (broker-service.ts).
 *
 * Invariants: the revision is that of the content, so hosts with the same tools have the same one, and a server that comes and
 * goes without changing its tools tells nobody; nothing is kept for others, or told to who has asked nothing, before each server
 * was seen once, or was waited for: a host that has just begun would take away what its equals know; at most so many roles are
 * kept, and of those who wait to be told one of a kind for each mailbox or role; who throws when it is told keeps no other from it.
 */
import { createHash } from 'node:crypto';
import { renamed } from '../../config/tool-rules.js';
import { setBounded } from '../../kernel/bounded-map.js';
import type { Cancel, Clock } from '../../kernel/clock.js';
import type { HostError } from '../../kernel/errors.js';
import { roleKey } from '../../policy/composite-key.js';
import type { Principal } from '../../policy/operation.js';
import { type Manifest, type ManifestTool, manifestReply } from '../messages.js';
import { noRole, unlistedRole } from './role-denials.js';
import type { ServedHost } from './served-host.js';

const rolesMax = 1_024;
/** Servers that start together are told of together. */
const gatherMs = 50;

export interface RoleManifest {
  readonly manifest: Manifest;
  /** The reply that holds it. */
  readonly body: Buffer;
  /** By the name that is shown. Several: the name alone says too little. */
  readonly byName: ReadonlyMap<string, readonly Target[]>;
  /** Why the role sees nothing, whatever servers there are. */
  readonly denied: HostError | undefined;
}

/** What the host calls it. */
export interface Target {
  readonly server: string;
  readonly tool: string;
}

export interface ManifestsOptions {
  readonly host: ServedHost;
  readonly clock: Clock;
  /** Who is without a role, or in one that is not listed, sees what the host allows it; otherwise nothing. */
  readonly isRolelessAllowed: () => boolean;
  readonly onChanged: (role: string | undefined, manifest: RoleManifest) => void;
  readonly onProblem: (error: unknown) => void;
}

export class Manifests {
  readonly #options: ManifestsOptions;
  readonly #byRole = new Map<string | undefined, RoleManifest>();
  /** What they were made from. */
  #signature = '';
  #cancelLook: Cancel | undefined;
  /** Roles whose manifest could not be made when it changed, with the revision that they were told last. */
  readonly #unmade = new Map<string | undefined, string>();
  /** What is shown as soon as it may be, by who is to see it. */
  readonly #unshown = new Map<string, () => void>();
  #isClosed = false;
  readonly #stopListening: () => void;

  constructor(options: ManifestsOptions) {
    this.#options = options;
    this.#stopListening = options.host.onKnownChanged(() => this.changed());
  }

  /** As things are now. */
  of(role: string | undefined): RoleManifest {
    const signature = this.#sign();
    if (signature !== this.#signature) this.#remake(signature);
    const kept = this.#byRole.get(role);
    if (kept) return kept;
    const made = this.#make(role);
    setBounded(this.#byRole, role, made, rolesMax);
    const told = this.#unmade.get(role);
    if (this.#unmade.delete(role) && told !== made.manifest.revision) this.#tellChanged(role);
    return made;
  }

  /** Resolves when every server was seen once, or 5 s have passed; undefined: there is nothing to wait for. */
  whenSeen(): Promise<void> | undefined {
    const { host } = this.#options;
    const unseen = host.names().filter((server) => host.known(server)?.facts === undefined);
    return unseen.length > 0 ? host.startupListing(unseen) : undefined;
  }

  /** As things are then: at once where there is nothing to wait for, and once for all that was asked for `whom` until then. */
  show(whom: string, role: string | undefined, onShown: (manifest: RoleManifest) => void): void {
    const tell = () => {
      try {
        onShown(this.of(role));
      } catch (error) {
        this.#options.onProblem(error);
      }
    };
    if (this.#unshown.size === 0) {
      const sight = this.whenSeen();
      if (sight === undefined) return tell();
      void sight.then(() => this.#seen());
    }
    this.#unshown.set(whom, tell);
  }

  #seen(): void {
    const unshown = [...this.#unshown.values()];
    this.#unshown.clear();
    if (!this.#isClosed) for (const tell of unshown) tell();
  }

  /** Something may have: looked at soon, and told where it has. */
  changed(): void {
    const { clock } = this.#options;
    this.#cancelLook ??= clock.at(clock.nowMs() + gatherMs, () => {
      this.#cancelLook = undefined;
      const signature = this.#sign();
      if (signature !== this.#signature) this.#remake(signature);
    });
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelLook?.();
    this.#stopListening();
  }

  #sign(): string {
    const { host, isRolelessAllowed } = this.#options;
    const parts = [String(host.rulesRevision), String(isRolelessAllowed())];
    for (const name of host.names()) parts.push(`${name}:${host.known(name)?.revision}`);
    return parts.join(' ');
  }

  #remake(signature: string): void {
    this.#signature = signature;
    const unmade = [...this.#unmade.keys()];
    for (const [role, before] of [...this.#byRole]) {
      const made = this.#remade(role, before);
      if (!made) continue;
      this.#byRole.set(role, made);
      if (made.manifest.revision !== before.manifest.revision) this.#tellChanged(role);
    }
    for (const role of unmade) this.#tryAgain(role);
  }

  #tryAgain(role: string | undefined): void {
    try {
      this.of(role);
    } catch (error) {
      this.#options.onProblem(error);
    }
  }

  #tellChanged(role: string | undefined): void {
    this.show(roleKey('changed', role), role, (manifest) => this.#options.onChanged(role, manifest));
  }

  /** Undefined: it could not be made, and is made, and told, when it is asked for or something changes. */
  #remade(role: string | undefined, { manifest }: RoleManifest): RoleManifest | undefined {
    try {
      return this.#make(role);
    } catch (error) {
      this.#byRole.delete(role);
      setBounded(this.#unmade, role, manifest.revision, rolesMax);
      this.#options.onProblem(error);
      return undefined;
    }
  }

  #make(role: string | undefined): RoleManifest {
    const { host, isRolelessAllowed } = this.#options;
    const principal: Principal = { id: anyone, role, scopes: [] };
    const tools: ManifestTool[] = [];
    const byName = new Map<string, Target[]>();
    const denied = this.#denied(role);
    if (role !== undefined || isRolelessAllowed())
      for (const server of host.names()) {
        const known = host.known(server);
        if (!known) continue;
        for (const { key, raw } of known.lists.get('tools/list')?.items ?? []) {
          if (!host.isAllowed(principal, server, key)) continue;
          const name = renamed(known.definition.tools, key);
          tools.push({ server, name, raw });
          const target = { server, tool: key };
          const targets = byName.get(name);
          if (targets) targets.push(target);
          else byName.set(name, [target]);
        }
      }
    nameTwins(tools, byName);
    const revision = revisionOf(tools, denied);
    const manifest = { revision, tools, denied };
    return { manifest, body: manifestReply(manifest), byName, denied };
  }

  #denied(role: string | undefined): HostError | undefined {
    const { host, isRolelessAllowed } = this.#options;
    if (role === undefined) return isRolelessAllowed() ? undefined : noRole();
    return host.isUnlistedRole?.(role) ? unlistedRole(role) : undefined;
  }
}

/** What a tool is called where it has no server: its own name, unless another has it too. */
export const flatName = ({ server, name }: ManifestTool, byName: RoleManifest['byName']): string =>
  (byName.get(name)?.length ?? 0) > 1 ? `${server}__${name}` : name;

function nameTwins(tools: readonly ManifestTool[], byName: Map<string, Target[]>): void {
  for (const tool of tools) {
    const flat = flatName(tool, byName);
    const target = byName.get(tool.name)?.find(({ server }) => server === tool.server);
    if (target && !byName.has(flat)) byName.set(flat, [target]);
  }
}

/** Rules of the configuration go by role; nobody is called this. */
const anyone = '*';

function revisionOf(tools: readonly ManifestTool[], denied: HostError | undefined): string {
  const hash = createHash('sha256');
  // A role that is listed later and still has no tool has another manifest: the reason is gone.
  if (denied) hash.update(`denied\0${denied.message}\0`);
  for (const { server, name, raw } of tools) hash.update(`${server}\0${name}\0${raw.length}\0`).update(raw);
  return hash.digest('base64url').slice(0, 22);
}
