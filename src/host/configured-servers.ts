/**
 * The servers of the configuration, over the times it is read: those that are new are added, those that are gone removed,
 * those that changed replaced. All others are left alone, calls under way and all.
 * Not here: reading the configuration (config/host-config.ts), how one is replaced (servers.ts).
 *
 * Invariants: a server that the embedder spawned or attached is never touched, whatever the configuration says of its name; an
 * entry that cannot be read leaves its server as it was, and is a disabled server where there was none; an entry that waits for
 * its name to be free is not declared once a later reading has no such entry.
 */
import { isDeepStrictEqual } from 'node:util';
import type { HostSettings } from '../config/host-config.js';
import { type ServerDefinition, unusableDefinition } from '../config/server-definition.js';
import { isAttached } from '../config/server-spec.js';
import { HostError } from '../kernel/errors.js';
import type { StaleServers } from './host-rules.js';
import type { Servers } from './servers.js';

/** What became of servers; each in the order of the configuration. */
export interface Reconfigured {
  readonly added: readonly string[];
  readonly changed: readonly string[];
  readonly removed: readonly string[];
}

/** The readable and the unreadable entries of a configuration. */
export type ConfiguredEntries = Pick<HostSettings, 'mcpServers' | 'unusable'>;

type DeclaredIn = Pick<Servers, 'declare' | 'redeclare' | 'remove' | 'find'>;

export class ConfiguredServers {
  readonly #servers: DeclaredIn;
  readonly #onProblem: (error: unknown) => void;
  /** As they were declared last. */
  readonly #declared = new Map<string, ServerDefinition>();
  /** As the configuration that was read last has them. */
  #latest: ReadonlyMap<string, ServerDefinition | 'as it was'> = new Map();

  constructor(servers: DeclaredIn, onProblem: (error: unknown) => void) {
    this.#servers = servers;
    this.#onProblem = onProblem;
  }

  /** At the start. */
  declare(entries: ConfiguredEntries): void {
    for (const definition of this.#definitionsOf(entries)) {
      const { name } = definition;
      this.#servers.declare(definition, this.#onProblem);
      if (this.#servers.find(name)?.definition === definition) this.#declared.set(name, definition);
    }
  }

  /** Servers that `apply` is going to remove or replace, and those that stay as they were because their entry cannot be read. */
  stale(entries: ConfiguredEntries): Required<StaleServers> {
    const definitions = this.#newDefinitions(entries);
    const names = [...this.#declared.keys()].filter((name) => this.#isOurs(name));
    const outdated = names.filter((name) => definitions.get(name) === 'as it was');
    const isSame = (name: string) => isDeepStrictEqual(definitions.get(name), this.#declared.get(name));
    return { changing: names.filter((name) => !outdated.includes(name) && !isSame(name)), outdated };
  }

  /**
   * Everything is changed in the tick this is called in, unless a change of a server is under way; resolves when what was
   * removed is gone. `changed` is called for each server once it has its new definition or is no longer found.
   */
  async apply(entries: ConfiguredEntries, changed: (server: string) => void = () => {}): Promise<Reconfigured> {
    const next = this.#newDefinitions(entries);
    this.#latest = next;
    const removed = [...this.#declared.keys()].filter((name) => !next.has(name) && this.#isOurs(name));
    const gone = removed.map((name) => {
      const before = this.#servers.find(name)?.definition;
      this.#declared.delete(name);
      return this.#announce(
        name,
        before,
        this.#servers.remove(name, (definition) => definition === before),
        changed,
      );
    });
    const definitions = new Map([...next].flatMap(([name, each]) => (each === 'as it was' ? [] : [[name, each]])));
    const outcomes = [...definitions.values()].map((definition) => {
      const before = this.#servers.find(definition.name)?.definition;
      return this.#announce(definition.name, before, this.#put(definition), changed);
    });
    const told = await Promise.all(outcomes);
    for (const end of await Promise.allSettled(gone)) if (end.status === 'rejected') this.#onProblem(end.reason);
    const names = [...definitions.keys()];
    const those = (outcome: string) => names.filter((_, i) => told[i] === outcome);
    return { added: those('added'), changed: those('replaced'), removed };
  }

  /** By name; an entry that cannot be used leaves a server that runs as it was. */
  #newDefinitions(entries: ConfiguredEntries): Map<string, ServerDefinition | 'as it was'> {
    return new Map(
      this.#definitionsOf(entries).map((definition) => {
        const { name, problem } = definition;
        return [name, problem && this.#runs(name) ? 'as it was' : definition];
      }),
    );
  }

  /** Calls `changed` now if the change is already made, else once it is. */
  #announce<T>(
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

  /** Entries that cannot be used come as disabled servers. One whose shown name another entry has is only reported. */
  #definitionsOf({ mcpServers, unusable }: ConfiguredEntries): ServerDefinition[] {
    const all = new Map(mcpServers);
    for (const [name, error] of unusable) {
      const definition = unusableDefinition(name, error);
      if (!all.has(definition.name)) all.set(definition.name, definition);
    }
    return [...all.values()];
  }

  /** A usable definition of an earlier reading has the name. */
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

  /** The one that has the name is the one that was declared. */
  #isOurs(name: string): boolean {
    const declared = this.#declared.get(name);
    return declared !== undefined && this.#servers.find(name)?.definition === declared;
  }
}

function taken({ name, spec }: ServerDefinition): HostError {
  const added = isAttached(spec) ? 'attached' : 'spawned';
  return new HostError('invalid_spec', `mcpServers.${name}: the name belongs to a server that was ${added}`, {
    server: name,
    field: `mcpServers.${name}`,
    execution: 'not_executed',
    hint: `choose another name in the configuration; the server that was ${added} goes on`,
  });
}
