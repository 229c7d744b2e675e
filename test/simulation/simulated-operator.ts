/**
 * The operator of a simulated world: stops and starts servers, edits their entries, removes them and adds them again.
 * What must hold: a stop that has resolved leaves no process and no exchange, and a stopped server stays stopped.
 */
import type { Host } from '../../src/host/host.js';
import { type HostError, isHostError } from '../../src/kernel/errors.js';
import type { Chance } from './chance.js';
import type { Member, SimulatedWorld } from './simulated-world.js';

export class SimulatedOperator {
  readonly #host: Host;
  readonly #world: SimulatedWorld;
  /** Stopped servers, each with its last stop. */
  readonly #stopped = new Map<string, symbol>();
  readonly #removed = new Set<string>();

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

  /** A reload starts a server that was stopped. False: there is none of this name. */
  mayReload({ name }: Member): boolean {
    if (this.#removed.has(name)) return false;
    this.#stopped.delete(name);
    return true;
  }

  /** Every server is wanted again. */
  restoreAll(): void {
    this.#checkStopped();
    for (const member of this.#world.members) {
      if (this.#removed.has(member.name)) this.#removeOrAdd(member);
      if (this.#stopped.has(member.name)) this.#start(member);
    }
  }

  #stop(member: Member): void {
    const { name, upstream } = member;
    this.#note(member, 'stop');
    const stop = Symbol(name);
    this.#stopped.set(name, stop);
    this.#host.stop(name).then(
      () => {
        // It may have been started again before its end, and stopped once more.
        if (this.#stopped.get(name) !== stop) return;
        const left = upstream.kind === 'stdio' ? upstream.live : upstream.port.exchanges;
        if (left > 0) this.#world.wrong.push(`${name} is stopped and has ${left} processes or exchanges`);
      },
      (error: unknown) => {
        this.#expect(error, name, ['server_not_found']);
        // The server is being removed, and is added again only after that.
        if (this.#stopped.get(name) === stop) this.#stopped.delete(name);
      },
    );
  }

  #start(member: Member): void {
    this.#note(member, 'start');
    this.#stopped.delete(member.name);
    this.#host.start(member.name).catch((error: unknown) => this.#expect(error, member.name));
  }

  #edit(member: Member): void {
    this.#note(member, 'edit');
    const entry = member.entry as Record<string, unknown>;
    entry.keepAlive = entry.keepAlive === '10m' ? '1m' : '10m';
    this.#reconfigure();
  }

  #removeOrAdd(member: Member): void {
    const { name } = member;
    this.#note(member, this.#removed.has(name) ? 'add' : 'remove');
    this.#stopped.delete(name);
    if (!this.#removed.delete(name)) this.#removed.add(name);
    this.#reconfigure();
  }

  #reconfigure(): void {
    const wanted = this.#world.members.filter(({ name }) => !this.#removed.has(name));
    const mcpServers = Object.fromEntries(wanted.map(({ name, entry }) => [name, { ...entry }]));
    this.#host.reconfigure({ mcpServers }).catch((error: unknown) => this.#expect(error, 'reconfigure', []));
  }

  #note({ name, upstream }: Member, what: string): void {
    this.#world.note(`${name} ${what}`);
    if (upstream.kind === 'http') upstream.check.forgiven();
  }

  #checkStopped(): void {
    const rows = this.#world.status();
    for (const name of this.#stopped.keys()) {
      const { state } = rows.get(name) ?? {};
      if (state !== undefined && state !== 'stopped' && state !== 'stopping')
        this.#world.wrong.push(`${name} was stopped and is ${state}`);
    }
  }

  /** `codes`: undefined for any error of a host. */
  #expect(error: unknown, what: string, codes?: readonly HostError['code'][]): void {
    if (isHostError(error) && (codes === undefined || codes.includes(error.code))) return;
    this.#world.wrong.push(`${what}: ${String(error)}`);
  }
}
