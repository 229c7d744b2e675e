/**
 * The operator of a simulated world: stops and starts servers, edits their entries, removes them and adds them again. What must
 * hold: a stop or a removal that has resolved leaves no process and no exchange; a stopped server stays stopped, also with
 * another definition; a call that is made meanwhile does not run.
 *
 * Requests of an operator may overlap. A removed server keeps its name until it has ended, 5 s at most, and an entry that was
 * added again waits for the name. Until then the host knows no such server: a stop or reload is refused with an error that
 * says so.
 */
import type { Host } from '../../src/host/host.js';
import { isHostError } from '../../src/kernel/errors.js';
import type { Chance } from './chance.js';
import type { Member, SimulatedWorld } from './simulated-world.js';

/** Identity of a request that later ones may overtake. */
type Request = object;

interface Removal {
  readonly atMs: number;
  /** The request that ends the server: an earlier one, if the entry was added again and still waits for its name. */
  readonly request: Request;
}

export class SimulatedOperator {
  readonly #host: Host;
  readonly #world: SimulatedWorld;
  /** The last stop of each server, unless a later request started, removed or reloaded the server. */
  readonly #stopped = new Map<string, Request>();
  /** Servers that are removed and were not added again. */
  readonly #removed = new Map<string, Removal>();
  /** The last removal of each server. */
  readonly #removals = new Map<string, Request>();
  /** Added servers that may still wait for their name. */
  readonly #adding = new Map<string, Request>();

  constructor(host: Host, world: SimulatedWorld) {
    this.#host = host;
    this.#world = world;
  }

  act(member: Member, chance: Chance): void {
    const { name } = member;
    this.#checkStopped();
    const what = this.#removed.has(name) ? 'remove' : chance.oneOf(['stop', 'stop', 'edit', 'remove'] as const);
    if (what === 'remove') this.#removeOrAdd(member);
    else if (what === 'edit') this.#edit(member);
    else if (this.#stopped.has(name)) this.#start(member);
    else this.#stop(member);
  }

  /** A reload starts a server that was stopped. False: no server has this name. */
  mayReload({ name }: Member): boolean {
    if (this.#removed.has(name)) return false;
    this.#stopped.delete(name);
    return true;
  }

  /** True if the error says that the server is unknown, and the server is removed or waits for its name. */
  mayBeUnknown(name: string, error: unknown): boolean {
    return (
      isHostError(error) && error.code === 'server_not_found' && (this.#removed.has(name) || this.#adding.has(name))
    );
  }

  /**
   * Returns the request after which calls must not run: a stop, or a removal in an earlier instant. Undefined: calls may run.
   * A call that waits for a slot may run if the server is started meanwhile.
   */
  awayBy({ name }: Member): object | undefined {
    const removed = this.#removed.get(name);
    return removed && removed.atMs < this.#world.clock.nowMs() ? removed : this.#stopped.get(name);
  }

  /** Adds removed servers again and starts stopped ones. */
  restoreAll(): void {
    this.#checkStopped();
    for (const member of this.#world.members) {
      if (this.#removed.has(member.name)) this.#removeOrAdd(member);
      if (this.#stopped.has(member.name)) this.#start(member);
    }
  }

  #stop(member: Member): void {
    const { name } = member;
    const request = {};
    this.#world.operated(name, 'stop');
    this.#stopped.set(name, request);
    this.#host.stop(name).then(
      () => {
        // Otherwise the server was started again before its end, and the end of a later stop is still to come.
        if (this.#stopped.get(name) === request) this.#checkEnded(member, 'stopped');
      },
      (error: unknown) => {
        this.#mustBeUnknown(error, name);
        if (this.#stopped.get(name) === request) this.#stopped.delete(name);
      },
    );
  }

  #start(member: Member): void {
    const { name } = member;
    this.#world.operated(name, 'start');
    this.#stopped.delete(name);
    this.#host.start(name).catch((error: unknown) => {
      // The start may fail, and later requests may end it.
      if (!isHostError(error)) this.#world.wrong.push(`${name}: ${String(error)}`);
      else if (error.code === 'server_not_found') this.#mustBeUnknown(error, name);
    });
  }

  #edit(member: Member): void {
    this.#world.operated(member.name, 'edit');
    this.#forgive(member);
    const entry = member.entry as Record<string, unknown>;
    entry.keepAlive = entry.keepAlive === '10m' ? '1m' : '10m';
    void this.#reconfigure();
  }

  #removeOrAdd(member: Member): void {
    const { name } = member;
    const isAdded = this.#removed.has(name);
    const request = {};
    this.#world.operated(name, isAdded ? 'add' : 'remove');
    this.#forgive(member);
    this.#stopped.delete(name);
    this.#removed.delete(name);
    this.#adding.delete(name);
    if (isAdded) this.#add(member, request);
    else this.#remove(member, request);
  }

  #add(member: Member, request: Request): void {
    const { name } = member;
    this.#adding.set(name, request);
    void this.#reconfigure().then(() => {
      if (this.#adding.get(name) !== request) return;
      this.#adding.delete(name);
      // Requests of the removed server may have ended in a pause since.
      this.#forgive(member);
    });
  }

  #remove(member: Member, request: Request): void {
    const { name } = member;
    // An entry that waits for its name has no server yet, so its removal ends nothing.
    const isKnown = this.#host.names().includes(name);
    if (isKnown) this.#removals.set(name, request);
    this.#removed.set(name, { atMs: this.#world.clock.nowMs(), request: this.#removals.get(name) ?? request });
    void this.#reconfigure().then(() => {
      if (this.#removed.get(name)?.request === request) this.#checkEnded(member, 'removed');
    });
  }

  async #reconfigure(): Promise<void> {
    const wanted = this.#world.members.filter(({ name }) => !this.#removed.has(name));
    const mcpServers = Object.fromEntries(wanted.map(({ name, entry }) => [name, { ...entry }]));
    try {
      await this.#host.reconfigure({ mcpServers });
    } catch (error) {
      this.#world.wrong.push(`reconfigure: ${String(error)}`);
    }
  }

  /** A new definition has no pause of the old one. */
  #forgive({ upstream }: Member): void {
    if (upstream.kind === 'http') upstream.check.forgiven();
  }

  #checkEnded({ name, upstream }: Member, what: string): void {
    const left = upstream.kind === 'stdio' ? upstream.live : upstream.port.exchanges;
    if (left > 0) this.#world.wrong.push(`${name} is ${what} and has ${left} processes or exchanges`);
  }

  #checkStopped(): void {
    const rows = this.#world.status();
    for (const name of this.#stopped.keys()) {
      const { state } = rows.get(name) ?? {};
      if (state !== 'stopped' && state !== 'stopping') this.#world.wrong.push(`${name} was stopped and is ${state}`);
    }
  }

  #mustBeUnknown(error: unknown, name: string): void {
    if (!this.mayBeUnknown(name, error)) this.#world.wrong.push(`${name}: ${String(error)}`);
  }
}
