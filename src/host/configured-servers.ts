/**
 * Applies a configuration to a running host: adds, removes and replaces servers. Unchanged servers and their open calls
 * continue. `changeConfiguration` also swaps the rules.
 * Not here: parsing the configuration (config/host-config.ts), replacing one server (servers.ts).
 *
 * Invariants: rules and servers change in one tick; no principal sees a mix of old and new ones. Spawned and attached servers
 * are never touched. An invalid entry leaves a running server unchanged; otherwise it becomes a disabled server. An entry that
 * waits until its name is free is dropped if a later configuration no longer has it.
 */
import { isDeepStrictEqual } from 'node:util';
import type { Listings } from '../catalog/listings.js';
import type { HostSettings } from '../config/host-config.js';
import type { SecretValues } from '../config/secrets/secret-values.js';
import { type ServerDefinition, unusableDefinition } from '../config/server-definition.js';
import { isAttached } from '../config/server-spec.js';
import { HostError } from '../kernel/errors.js';
import type { Audit } from './audit.js';
import type { JointChange } from './host-interface.js';
import type { HostRules, StaleServers } from './host-rules.js';
import type { ListOperations } from './list-operations.js';
import type { Servers } from './servers.js';

/** Server names, in the order of the configuration. */
export interface Reconfigured {
  readonly added: readonly string[];
  readonly changed: readonly string[];
  readonly removed: readonly string[];
}

type ConfiguredEntries = Pick<HostSettings, 'mcpServers' | 'unusable'>;

type DeclaredIn = Pick<Servers, 'declare' | 'redeclare' | 'remove' | 'find'>;

export class ConfiguredServers {
  readonly #servers: DeclaredIn;
  readonly #onProblem: (error: unknown) => void;
  readonly #declared = new Map<string, ServerDefinition>();
  /** Definitions of the newest configuration. */
  #latest: ReadonlyMap<string, ServerDefinition | 'keep'> = new Map();

  constructor(servers: DeclaredIn, onProblem: (error: unknown) => void) {
    this.#servers = servers;
    this.#onProblem = onProblem;
  }

  declare(entries: ConfiguredEntries): void {
    for (const definition of this.#definitionsOf(entries)) {
      const { name } = definition;
      this.#servers.declare(definition, this.#onProblem);
      if (this.#servers.find(name)?.definition === definition) this.#declared.set(name, definition);
    }
  }

  /** Servers that `apply` will remove or replace, and servers that stay as they are because their entry is invalid. */
  stale(entries: ConfiguredEntries): Required<StaleServers> {
    const definitions = this.#newDefinitions(entries);
    const names = [...this.#declared.keys()].filter((name) => this.#isOurs(name));
    const outdated = names.filter((name) => definitions.get(name) === 'keep');
    const isSame = (name: string) => isDeepStrictEqual(definitions.get(name), this.#declared.get(name));
    return { changing: names.filter((name) => !outdated.includes(name) && !isSame(name)), outdated };
  }

  /**
   * Changes all servers in the current tick, except a server with another change in progress. Resolves when removed servers
   * have ended. Calls `changed` for each server when its new definition, or its removal, is in effect.
   */
  async apply(entries: ConfiguredEntries, changed: (server: string) => void = () => {}): Promise<Reconfigured> {
    const next = this.#newDefinitions(entries);
    this.#latest = next;
    const removed = [...this.#declared.keys()].filter((name) => !next.has(name) && this.#isOurs(name));
    const gone = removed.map((name) => {
      const before = this.#servers.find(name)?.definition;
      this.#declared.delete(name);
      return this.#notifyWhenChanged(
        name,
        before,
        this.#servers.remove(name, (definition) => definition === before),
        changed,
      );
    });
    const definitions = new Map([...next].flatMap(([name, each]) => (each === 'keep' ? [] : [[name, each]])));
    const outcomes = [...definitions.values()].map((definition) => {
      const before = this.#servers.find(definition.name)?.definition;
      return this.#notifyWhenChanged(definition.name, before, this.#put(definition), changed);
    });
    const results = await Promise.all(outcomes);
    for (const end of await Promise.allSettled(gone)) if (end.status === 'rejected') this.#onProblem(end.reason);
    const names = [...definitions.keys()];
    const those = (outcome: string) => names.filter((_, i) => results[i] === outcome);
    return { added: those('added'), changed: those('replaced'), removed };
  }

  /** Definitions by name; `keep` for an invalid entry whose server runs. */
  #newDefinitions(entries: ConfiguredEntries): Map<string, ServerDefinition | 'keep'> {
    return new Map(
      this.#definitionsOf(entries).map((definition) => {
        const { name, problem } = definition;
        return [name, problem && this.#runs(name) ? 'keep' : definition];
      }),
    );
  }

  /** Calls `changed` now if the change is already in effect, otherwise when it is. */
  #notifyWhenChanged<T>(
    name: string,
    before: ServerDefinition | undefined,
    change: Promise<T>,
    changed: (server: string) => void,
  ): Promise<T> {
    if (this.#servers.find(name)?.definition !== before) {
      changed(name);
      return change;
    }
    return change.finally(() => changed(name));
  }

  /** Invalid entries become disabled servers. If a valid entry has the same server name, the invalid entry is only reported. */
  #definitionsOf({ mcpServers, unusable }: ConfiguredEntries): ServerDefinition[] {
    const all = new Map(mcpServers);
    for (const [name, error] of unusable) {
      const definition = unusableDefinition(name, error);
      if (!all.has(definition.name)) all.set(definition.name, definition);
    }
    return [...all.values()];
  }

  #runs(name: string): boolean {
    return this.#isOurs(name) && this.#declared.get(name)?.problem === undefined;
  }

  async #put(definition: ServerDefinition): Promise<'added' | 'unchanged' | 'replaced'> {
    const { name } = definition;
    try {
      const outcome = await this.#servers.redeclare(
        definition,
        (before) => {
          if (before !== this.#declared.get(name)) throw taken(before);
        },
        () => this.#latest.get(name) === definition,
      );
      if (outcome !== 'unchanged') this.#declared.set(name, definition);
      return outcome;
    } catch (error) {
      this.#onProblem(error);
      return 'unchanged';
    }
  }

  /** True if the server with this name comes from the configuration. */
  #isOurs(name: string): boolean {
    const declared = this.#declared.get(name);
    return declared !== undefined && this.#servers.find(name)?.definition === declared;
  }
}

function taken({ name, spec }: ServerDefinition): HostError {
  const added = isAttached(spec) ? 'attached' : 'spawned';
  return new HostError(
    'invalid_spec',
    `mcpServers.${name}: the name belongs to a server that was ${added} by the application`,
    {
      server: name,
      field: `mcpServers.${name}`,
      execution: 'not_executed',
      hint: `choose another name in the configuration; the ${added} server keeps running`,
    },
  );
}

/** The parts of a host that a configuration changes. */
interface ChangedParts {
  readonly audit: Audit;
  readonly listOperations: Pick<ListOperations, 'dropAll'>;
  readonly configured: ConfiguredServers;
  readonly listings: Pick<Listings, 'changed'>;
  readonly rules: HostRules;
  readonly servers: Servers;
  readonly secrets: SecretValues | undefined;
  readonly onProblem: (error: unknown) => void;
  readonly onConfigProblem: (error: unknown) => void;
}

/** Swaps rules and servers in one tick; never throws. Resolves when removed servers have ended. */
export function changeConfiguration(
  parts: ChangedParts,
  settings: HostSettings,
  tracing: Audit['tracing'],
  joint: JointChange | undefined,
): Promise<Reconfigured> {
  const { rules, configured, audit, servers, secrets, onProblem } = parts;
  audit.tracing = tracing;
  secrets?.configure(settings.secrets.exec);
  const before = servers.names();
  const closed = rules.configure(settings, configured.stale(settings));
  perform(joint?.swap, onProblem);
  const applied = configured.apply(settings, (server) => {
    rules.changed(server);
    // Notified after the rules have changed: a listener that looks the server up at once must find it.
    parts.listings.changed(server);
  });
  publishRules(parts, before);
  perform(joint?.announce, onProblem);
  for (const server of closed) parts.onConfigProblem(outOfDate(server));
  return applied;
}

/** Notifies listeners that the visibility of these servers may have changed. */
export function publishRules(
  { listOperations, listings, servers }: Pick<ChangedParts, 'listOperations' | 'listings' | 'servers'>,
  names: readonly string[] = servers.names(),
): void {
  listOperations.dropAll();
  for (const server of names) listings.changed(server);
}

function perform(step: (() => void) | undefined, onProblem: (error: unknown) => void): void {
  try {
    step?.();
  } catch (error) {
    onProblem(error);
  }
}

const outOfDate = (server: string): HostError =>
  new HostError(
    'invalid_spec',
    `mcpServers.${server}: the entry is invalid, and roles or keys changed too: only the operator may use the server`,
    {
      server,
      field: `mcpServers.${server}`,
      execution: 'not_executed',
      hint: 'correct the entry; until then the server runs with its old definition',
    },
  );
