/**
 * The servers of the configuration, over the times it is read: those that are new are added, those that are gone removed,
 * those that changed replaced. All others are left alone, calls under way and all.
 * Not here: reading the configuration (config/host-config.ts), how one is replaced (servers.ts).
 *
 * Invariants: a server that the embedder spawned or attached is never touched, whatever the configuration says of its name; an
 * entry that cannot be read leaves its server as it was.
 */
import type { ServerDefinition } from '../config/server-definition.js';
import { isAttached } from '../config/server-spec.js';
import { HostError } from '../kernel/errors.js';
import type { Servers } from './servers.js';

/** What became of servers; each in the order of the configuration. */
export interface Reconfigured {
  readonly added: readonly string[];
  readonly changed: readonly string[];
  readonly removed: readonly string[];
}

type DeclaredIn = Pick<Servers, 'declare' | 'redeclare' | 'remove' | 'find'>;

export class ConfiguredServers {
  readonly #servers: DeclaredIn;
  readonly #onProblem: (error: unknown) => void;
  /** As they were declared last. */
  readonly #declared = new Map<string, ServerDefinition>();

  constructor(servers: DeclaredIn, onProblem: (error: unknown) => void) {
    this.#servers = servers;
    this.#onProblem = onProblem;
  }

  /** At the start. */
  declare(definitions: ReadonlyMap<string, ServerDefinition>): void {
    for (const [name, definition] of definitions) {
      this.#servers.declare(definition, this.#onProblem);
      if (this.#servers.find(name)?.definition === definition) this.#declared.set(name, definition);
    }
  }

  /**
   * Everything is changed in the tick this is called in, unless a change of a server is under way; resolves when what was
   * removed is gone. `written`: the names that the configuration has, readable or not.
   */
  async apply(definitions: ReadonlyMap<string, ServerDefinition>, written: ReadonlySet<string>): Promise<Reconfigured> {
    const removed = [...this.#declared.keys()].filter((name) => !written.has(name) && this.#isOurs(name));
    const gone = removed.map((name) => {
      const declared = this.#declared.get(name);
      this.#declared.delete(name);
      return this.#servers.remove(name, (definition) => definition === declared);
    });
    const outcomes = [...definitions.values()].map((definition) => this.#put(definition));
    const told = await Promise.all(outcomes);
    for (const end of await Promise.allSettled(gone)) if (end.status === 'rejected') this.#onProblem(end.reason);
    const names = [...definitions.keys()];
    const those = (outcome: string) => names.filter((_, i) => told[i] === outcome);
    return { added: those('added'), changed: those('replaced'), removed };
  }

  async #put(definition: ServerDefinition): Promise<'added' | 'unchanged' | 'replaced'> {
    const { name } = definition;
    try {
      const outcome = await this.#servers.redeclare(definition, (before) => {
        if (before !== this.#declared.get(name)) throw taken(before);
      });
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
