/**
 * The manifest of each role: the tools of all servers that the role may call, kept as bytes until something changes; and the tool that a
 * call means.
 * Not here: sending manifests (broker-service.ts).
 *
 * Invariants: the revision is a hash of the content, so a server that restarts with the same tools changes nothing. Workers are
 * notified of a change only after each server was listed once, or the wait for it is over. Otherwise the restart of a host would
 * take tools away for a moment.
 */
import { createHash } from 'node:crypto';
import { renamed } from '../../config/tool-rules.js';
import { setBounded } from '../../kernel/bounded-map.js';
import type { Cancel, Clock } from '../../kernel/clock.js';
import type { HostError } from '../../kernel/errors.js';
import type { Principal } from '../../policy/operation.js';
import { brokerLimits } from '../protocol/limits.js';
import { errorBody, type ManifestTool, manifestBody } from '../protocol/reply-body.js';
import {
  ambiguous,
  manifestTooLarge,
  noRole,
  notAllowed,
  notFound,
  revoked,
  type Target,
  unlistedRole,
} from './call-errors.js';
import type { ServedHost, WorkerIdentity } from './transport.js';

const rolesMax = 1_024;
/** Changes within this time cause one notification, because servers often start together. */
const gatherMs = 50;
/** A name that no worker has: the rules depend on the role alone. */
const anyWorker = '*';

export interface RoleManifest {
  readonly revision: string;
  /** The manifest, or the error that says why there is none. */
  readonly body: Buffer;
  /** By shown name. With several targets the worker must name the server. */
  readonly byName: ReadonlyMap<string, readonly Target[]>;
  /** Why the role may use nothing. */
  readonly denied: HostError | undefined;
  /** The server with the most bytes, if the manifest is too large. */
  readonly tooLarge: string | undefined;
}

export interface ManifestsOptions {
  readonly host: ServedHost;
  readonly clock: Clock;
  readonly isRolelessAllowed: () => boolean;
  /** The workers of this role may have another manifest than this one. */
  readonly onChanged: (role: string | undefined, manifest: RoleManifest) => void;
  readonly onProblem: (error: unknown) => void;
}

export class Manifests {
  readonly #options: ManifestsOptions;
  readonly #byRole = new Map<string | undefined, RoleManifest>();
  /** Revisions of servers and rules from which `#byRole` was made. */
  #signature = '';
  /**
   * Revision of the rules at the last `#refresh`. While it and the servers are unchanged, `#refresh` returns at once: a call asks for a
   * manifest several times.
   */
  #rules = '';
  #isStale = true;
  #cancelLook: Cancel | undefined;
  /** Roles whose workers are notified after the first listing of all servers. */
  readonly #unnotified = new Set<string | undefined>();
  #isClosed = false;
  readonly #stopListening: () => void;

  constructor(options: ManifestsOptions) {
    this.#options = options;
    this.#stopListening = options.host.onKnownChanged(() => this.changed());
  }

  /** Throws if the host does, with its error. */
  of(role: string | undefined): RoleManifest {
    this.#refresh();
    const kept = this.#byRole.get(role);
    if (kept) return kept;
    const made = this.#make(role);
    setBounded(this.#byRole, role, made, rolesMax);
    return made;
  }

  /** The tool that a worker means, or why the worker may not call it. `worker` undefined: its key is not valid any more. */
  find(worker: WorkerIdentity | undefined, server: string | undefined, tool: string): Target | HostError {
    if (!worker) return revoked();
    const { host } = this.#options;
    const { name, role } = worker;
    const { byName, denied } = this.of(role);
    const found = (byName.get(tool) ?? []).filter((each) => server === undefined || each.server === server);
    if (found.length > 1) return ambiguous(tool);
    const [target] = found;
    if (target) return target;
    const servers = server === undefined ? host.names() : [server];
    if (!servers.some((each) => this.#isAllowed({ id: name, role, scopes: [] }, each, tool)))
      return notAllowed(role, server, tool, denied);
    // The server was not listed yet: the host finds out when it calls.
    if (server !== undefined && host.known(server)?.lists.has('tools/list') === false) return { server, tool };
    return notFound(server, tool);
  }

  /** Resolves when each server was listed once, or the host's time for that is over. Undefined: no wait. */
  whenListed(): Promise<void> | undefined {
    const { host } = this.#options;
    const unlisted = host.names().filter((server) => host.known(server)?.facts === undefined);
    return unlisted.length > 0 ? host.startupListing(unlisted) : undefined;
  }

  /** Returns true while the first listing lasts: then the workers of this role are notified after it. */
  notifiesLater(role: string | undefined): boolean {
    const listing = this.whenListed();
    if (listing === undefined) return false;
    if (this.#unnotified.size === 0) void listing.then(() => this.#listed());
    this.#unnotified.add(role);
    return true;
  }

  /** Servers or rules may have changed: manifests are rebuilt soon, and workers are notified of changes. */
  changed(): void {
    const { clock } = this.#options;
    this.#isStale = true;
    this.#cancelLook ??= clock.at(clock.nowMs() + gatherMs, () => {
      this.#cancelLook = undefined;
      this.#refresh();
    });
  }

  /** Servers that made a manifest too large. */
  tooLarge(): string[] {
    return [...new Set([...this.#byRole.values()].flatMap(({ tooLarge }) => tooLarge ?? []))];
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelLook?.();
    this.#stopListening();
  }

  #listed(): void {
    const roles = [...this.#unnotified];
    this.#unnotified.clear();
    if (!this.#isClosed) for (const role of roles) this.#notify(role, () => true);
  }

  #notify(role: string | undefined, isNews: (manifest: RoleManifest) => boolean): void {
    const { onChanged, onProblem } = this.#options;
    try {
      const manifest = this.of(role);
      if (isNews(manifest)) onChanged(role, manifest);
    } catch (error) {
      // The rules of a foreign host may throw; those of Hostler do not (policy/allowlist.ts).
      onProblem(error);
    }
  }

  /** Makes the manifests anew if servers or rules have changed. */
  #refresh(): void {
    const { host, isRolelessAllowed } = this.#options;
    const rules = `${host.rulesRevision} ${isRolelessAllowed()}`;
    if (!this.#isStale && rules === this.#rules) return;
    [this.#isStale, this.#rules] = [false, rules];
    let signature = rules;
    for (const name of host.names()) signature += ` ${name}:${host.known(name)?.revision}`;
    if (signature === this.#signature) return;
    this.#signature = signature;
    const before = [...this.#byRole];
    this.#byRole.clear();
    for (const [role, { revision }] of before)
      this.#notify(role, (now) => now.revision !== revision && !this.notifiesLater(role));
  }

  #make(role: string | undefined): RoleManifest {
    const denied = this.#denied(role);
    const [tools, byName] = this.#toolsOf(role);
    nameTwins(tools, byName);
    const revision = revisionOf(tools, denied);
    const made = { revision, byName, denied };
    const body = manifestBody({ revision, tools, denied });
    if (body.length <= brokerLimits.manifestBytes) return { ...made, body, tooLarge: undefined };
    const server = largestOf(tools);
    const error = manifestTooLarge(role, body.length, brokerLimits.manifestBytes, server);
    this.#options.onProblem(error);
    return { ...made, body: errorBody(error), tooLarge: server };
  }

  #toolsOf(role: string | undefined): [ManifestTool[], Map<string, Target[]>] {
    const { host } = this.#options;
    const principal: Principal = { id: anyWorker, role, scopes: [] };
    const tools: ManifestTool[] = [];
    const byName = new Map<string, Target[]>();
    for (const server of host.names()) {
      const known = host.known(server);
      for (const { key, raw, joined } of known?.lists.get('tools/list')?.items ?? []) {
        if (!known || !this.#isAllowed(principal, server, key)) continue;
        const name = renamed(known.definition.tools, key);
        tools.push({ server, name, raw: joined ?? raw });
        byName.set(name, [...(byName.get(name) ?? []), { server, tool: key }]);
      }
    }
    return [tools, byName];
  }

  #isAllowed(principal: Principal, server: string, tool: string): boolean {
    const { host, isRolelessAllowed } = this.#options;
    return (principal.role !== undefined || isRolelessAllowed()) && host.isAllowed(principal, server, tool);
  }

  #denied(role: string | undefined): HostError | undefined {
    const { host, isRolelessAllowed } = this.#options;
    if (role === undefined) return isRolelessAllowed() ? undefined : noRole();
    return host.isUnlistedRole?.(role) ? unlistedRole(role) : undefined;
  }
}

/** A name that several servers have can also be called as `server__name`. */
function nameTwins(tools: readonly ManifestTool[], byName: Map<string, readonly Target[]>): void {
  for (const { server, name } of tools) {
    const targets = byName.get(name) ?? [];
    const full = `${server}__${name}`;
    const target = targets.find((each) => each.server === server);
    if (targets.length > 1 && target && !byName.has(full)) byName.set(full, [target]);
  }
}

function revisionOf(tools: readonly ManifestTool[], denied: HostError | undefined): string {
  const hash = createHash('sha256');
  // The reason is part of the revision: if the role is listed later and still has no tools, its workers must learn that the reason is gone.
  if (denied) hash.update(`denied\0${denied.message}\0`);
  for (const { server, name, raw } of tools) hash.update(`${server}\0${name}\0${raw.length}\0`).update(raw);
  return hash.digest('base64url').slice(0, 22);
}

function largestOf(tools: readonly ManifestTool[]): string | undefined {
  const bytes = new Map<string, number>();
  for (const { server, raw } of tools) bytes.set(server, (bytes.get(server) ?? 0) + raw.length);
  return [...bytes].sort((a, b) => b[1] - a[1])[0]?.[0];
}
