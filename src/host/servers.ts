/**
 * The servers of a host by name: what is registered, and the one that runs under each name.
 * Not here: keeping one running (supervisor/), who needs it (registry/), what is known of its lists (catalogue.ts).
 *
 * Invariant: there are never two servers under one name; the old one is gone before the new one starts.
 */
import type { ServerDefinition } from '../config/server-definition.js';
import type { Clock } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import type { CircuitChanged } from '../policy/breaker.js';
import { Registry } from '../registry/registry.js';
import type { SupervisorEvent } from '../supervisor/supervisor-events.js';
import { ManagedServer } from './managed-server.js';
import type { Supervised } from './supervise.js';

export interface ServersParts {
  readonly clock: Clock;
  readonly supervise: (definition: ServerDefinition) => Supervised;
  readonly onCircuit: (server: string) => CircuitChanged;
  /** Nothing that it answered before counts any more. */
  readonly forget: (server: string) => void;
  /** Another one has taken the name. */
  readonly recall: (managed: ManagedServer) => void;
}

export class Servers {
  readonly registry: Registry<ServerDefinition>;
  readonly #parts: ServersParts;
  readonly #byName = new Map<string, ManagedServer>();
  #isClosed = false;

  constructor(parts: ServersParts) {
    this.#parts = parts;
    this.registry = new Registry({ clock: parts.clock, onIdle: (name) => this.find(name)?.supervisor.idle() });
  }

  /** In the order of their names. */
  names(): string[] {
    return this.registry.list().map(({ name }) => name);
  }

  find(name: string): ManagedServer | undefined {
    return this.#byName.get(name);
  }

  /** Throws when it is not there, or the host is closed. */
  get(name: string): ManagedServer {
    this.mustBeOpen(name);
    const managed = this.#byName.get(name);
    if (managed) return managed;
    this.registry.get(name);
    throw new HostError('server_not_found', `no server named '${name}'`, { server: name });
  }

  mustBeOpen(server: string): void {
    if (!this.#isClosed) return;
    throw new HostError('server_stopped', `server '${server}' is not called: the host is closed`, {
      server,
      reason: 'closed',
      execution: 'not_executed',
    });
  }

  /** Resolves with the server when it is ready; starting it may take all of its start time. */
  async ready(name: string): Promise<ManagedServer> {
    const managed = this.get(name);
    const { startMs } = managed.definition.timeouts;
    await managed.supervisor.acquire(this.#parts.clock.nowMs() + startMs, undefined, startMs);
    return managed;
  }

  /** False: it was there already, with the same definition. */
  async add(definition: ServerDefinition, replace: boolean): Promise<boolean> {
    const { name, isLazy, isEnabled, keepAliveMs, card } = definition;
    const { supervise, onCircuit, forget, recall, clock } = this.#parts;
    const outcome = this.registry.register(
      { name, spec: definition, isLazy, keepAliveMs, origin: 'spawned', card },
      { replace },
    );
    if (outcome === 'unchanged') return false;
    forget(name);
    await this.#byName.get(name)?.dispose();
    const hold = this.registry.callHold(name);
    const { supervisor, auth } = supervise(definition);
    const managed = new ManagedServer(definition, supervisor, hold, clock, auth, onCircuit(name));
    this.#byName.set(name, managed);
    recall(managed);
    if (!isLazy && isEnabled) supervisor.begin();
    return outcome === 'added';
  }

  async remove(name: string): Promise<void> {
    const managed = this.#byName.get(name);
    this.#byName.delete(name);
    this.registry.remove(name);
    this.#parts.forget(name);
    await managed?.dispose();
  }

  /** What the state of a server means for those who count on it. */
  observe({ server, ...event }: SupervisorEvent): void {
    if (event.kind !== 'state') return;
    if (event.to === 'ready') {
      // The handshake of a new run was the probe.
      this.find(server)?.forgetCircuit();
      this.registry.opened(server);
    } else if ((event.from === 'ready' || event.from === 'suspect') && event.to !== 'suspect') {
      // Who is not running is not judged by calls: whether it can be had is for its supervisor to say.
      this.find(server)?.forgetCircuit();
      this.registry.closed(server);
    }
  }

  /** Nobody gets a server from here on. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all([...this.#byName.values()].map((managed) => managed.dispose()));
  }
}
