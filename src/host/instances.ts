/**
 * Instances of servers with `isolation: "per-client"`: one per client, started on first use, ended when idle, with its client,
 * or with the server.
 * Not here: restarts (supervisor/), and call policy (policy/): an instance has its own breaker, but all other policy is that
 * of its server.
 *
 * Invariants: an instance is used only by the client and the principal that it was created for. A client never has two: the
 * next one starts when the earlier one has ended. One principal cannot lock out others by naming many idle clients. Closing the
 * host waits for ended instances.
 */
import type { ServerRun } from '../catalog/server-run.js';
import type { SubscriptionTarget } from '../catalog/subscriptions.js';
import type { ServerDefinition } from '../config/server-definition.js';
import type { Clock } from '../kernel/clock.js';
import { HostError, isHostError } from '../kernel/errors.js';
import { compositeKey } from '../policy/composite-key.js';
import { type CallHold, Registry } from '../supervisor/registry.js';
import type { SupervisorEvent } from '../supervisor/supervisor-events.js';
import { CallTarget, type ManagedServer } from './managed-server.js';
import type { ServerCircuit } from './server-circuit.js';
import type { Servers } from './servers.js';
import type { Supervise, Supervised } from './supervise.js';

/** Bounds per server and in total: each instance is a process or a session. */
export const instancesPerServerMax = 64;
export const instancesMax = 256;

/** Includes the principal, because two principals may name their clients alike. */
const instanceKey = (server: string, owner: string, client: string): string => compositeKey(server, owner, client);

interface InstancesParts {
  readonly clock: Clock;
  readonly supervise: Supervise;
  readonly findServer: (name: string) => ManagedServer | undefined;
  readonly onProblem: (error: unknown) => void;
}

class Instance extends CallTarget {
  readonly server: string;

  /** `owner`: id of the principal that the instance was created for. */
  constructor(
    private readonly base: ManagedServer,
    readonly client: string,
    readonly owner: string,
    private readonly supervised: Supervised,
    hold: CallHold,
  ) {
    super(supervised.supervisor, base.auth, hold);
    this.server = base.definition.name;
  }

  protected createCircuit(): ServerCircuit {
    return this.base.circuitFor(this.supervisor);
  }

  dispose(): Promise<void> {
    this.supervised.unlisten?.();
    this.ownCircuit?.close();
    return this.supervisor.dispose(this.base.supervisor.isReplaced);
  }
}

/** A client with resource subscriptions. Its instance keeps running, and is started again after a reload. */
interface Subscribed {
  readonly server: string;
  readonly client: string;
  readonly owner: string;
  subscriptions: number;
}

export class Instances {
  readonly #parts: InstancesParts;
  /** Counts the leases of each instance, and its idle time. */
  readonly #uses: Registry<ServerDefinition>;
  readonly #byKey = new Map<string, Instance>();
  /** Bounded like subscriptions (catalog/subscriptions.ts). */
  readonly #subscribed = new Map<string, Subscribed>();
  /** Instances that are being stopped, by key. */
  readonly #ending = new Map<string, { readonly server: string; readonly ended: Promise<void> }>();
  #isClosed = false;

  constructor(parts: InstancesParts) {
    this.#parts = parts;
    this.#uses = new Registry({ clock: parts.clock, onIdle: (key) => this.#end(key), serversMax: instancesMax });
  }

  /** The instance of this client, or the shared server. */
  readonly targetOf = (base: ManagedServer, client: string | undefined, owner: string): CallTarget => {
    if (base.definition.isolation === 'shared') return base;
    if (client === undefined) throw instanceMissing(base.definition.name);
    return this.#of(base, client, owner);
  };

  countOf(server: string): number {
    let count = 0;
    for (const instance of this.#byKey.values()) if (instance.server === server) count++;
    return count;
  }

  /**
   * Called when a client has disconnected. Ends its instances of all principals: only the application, which names the
   * clients, calls this.
   */
  end(client: string): void {
    for (const [key, subscribed] of this.#subscribed) if (subscribed.client === client) this.#subscribed.delete(key);
    for (const [key, instance] of [...this.#byKey]) if (instance.client === client) this.#end(key);
  }

  find(key: string): CallTarget | undefined {
    return this.#byKey.get(key);
  }

  /** Keeps an instance of this client running, also after a reload, until the returned function is called. */
  hold(base: ManagedServer, client: string, owner: string): () => void {
    const server = base.definition.name;
    const instance = this.#of(base, client, owner);
    const key = instanceKey(server, owner, client);
    const known = this.#subscribed.get(key);
    const subscribed = known ?? { server, client, owner, subscriptions: 0 };
    subscribed.subscriptions++;
    if (!known) {
      this.#subscribed.set(key, subscribed);
      instance.enter();
    }
    return () => {
      subscribed.subscriptions--;
      if (subscribed.subscriptions > 0 || this.#subscribed.get(key) !== subscribed) return;
      this.#subscribed.delete(key);
      this.#byKey.get(key)?.leave();
    };
  }

  /** Starts the instances of clients with subscriptions, unless the server was removed, stopped or disabled. */
  resume(server: string): void {
    const base = this.#parts.findServer(server);
    if (!base || base.definition.isolation === 'shared' || this.#isClosed) return;
    for (const { client, owner, ...subscribed } of [...this.#subscribed.values()]) {
      if (subscribed.server !== server) continue;
      try {
        this.#of(base, client, owner).supervisor.begin();
      } catch (error) {
        // A stopped server resumes its instances when it is started.
        if (!isStopped(error)) this.#parts.onProblem(error);
      }
    }
  }

  /** Called when the server was reloaded. Resolves when the present runs have ended; waiting calls then start the next runs. */
  async reload(server: string): Promise<void> {
    const own = [...this.#byKey.values()].filter((instance) => instance.server === server);
    await Promise.all(own.map(({ supervisor }) => supervisor.reload()));
    await this.#allEnded((ending) => ending.server === server);
    this.resume(server);
  }

  /** Called when the server was stopped or replaced. Resolves when all its instances have ended. */
  async endOf(server: string): Promise<void> {
    for (const [key, instance] of [...this.#byKey]) if (instance.server === server) this.#end(key);
    await this.#allEnded((ending) => ending.server === server);
    this.resume(server);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const key of [...this.#byKey.keys()]) this.#end(key);
    await this.#allEnded(() => true);
  }

  async #allEnded(isMeant: (ending: { readonly server: string }) => boolean): Promise<void> {
    await Promise.all([...this.#ending.values()].filter(isMeant).map(({ ended }) => ended));
  }

  #of(base: ManagedServer, client: string, owner: string): Instance {
    const { name } = base.definition;
    const key = instanceKey(name, owner, client);
    const known = this.#byKey.get(key);
    if (known) return known;
    // A stopped or disabled server has no instances either.
    const refusal = base.supervisor.refusal();
    if (isStopped(refusal)) throw refusal;
    if (this.#isClosed || !this.#hasRoom(name, owner)) throw tooMany(name);
    return this.#make(base, client, owner, key);
  }

  #make(base: ManagedServer, client: string, owner: string, key: string): Instance {
    const definition: ServerDefinition = { ...base.definition, isLazy: true };
    const { keepAliveMs } = definition;
    this.#uses.register({ name: key, spec: definition, isLazy: true, keepAliveMs, card: undefined });
    const onEvent = (event: SupervisorEvent) => this.#observe(key, event);
    const supervised = this.#parts.supervise(definition, this.#ending.get(key), { key, auth: base.auth, onEvent });
    const instance = new Instance(base, client, owner, supervised, this.#uses.callHold(key));
    this.#byKey.set(key, instance);
    if (this.#subscribed.has(key)) instance.enter();
    return instance;
  }

  /**
   * Evicts instances without a run and without calls first, then one idle instance of the principal that has the most
   * instances.
   */
  #hasRoom(server: string, owner: string): boolean {
    const isFullOfServer = () => this.countOf(server) >= instancesPerServerMax;
    const isFull = () => this.#byKey.size >= instancesMax || isFullOfServer();
    if (!isFull()) return true;
    for (const [key, { supervisor }] of [...this.#byKey])
      if (!supervisor.current && this.#uses.held(key).call === 0) this.#end(key);
    if (!isFull()) return true;
    const idle = this.#idleOfGreediest(isFullOfServer() ? server : undefined, owner);
    if (idle === undefined) return false;
    this.#end(idle);
    return !isFull();
  }

  /**
   * Key of the oldest idle instance of the principal with the most instances (of this server, or of all servers). Undefined if
   * that principal would then have fewer instances than `owner`.
   */
  #idleOfGreediest(server: string | undefined, owner: string): string | undefined {
    const counts = new Map<string, number>([[owner, 0]]);
    const idle = new Map<string, string>();
    for (const [key, instance] of this.#byKey) {
      if (server !== undefined && instance.server !== server) continue;
      counts.set(instance.owner, (counts.get(instance.owner) ?? 0) + 1);
      // Maps keep insertion order, so this is the oldest one.
      if (this.#uses.held(key).call === 0 && !idle.has(instance.owner)) idle.set(instance.owner, key);
    }
    const own = counts.get(owner) as number;
    const [greediest] = [...idle.keys()].sort((a, b) => (counts.get(b) as number) - (counts.get(a) as number));
    if (greediest === undefined || (counts.get(greediest) as number) <= own + 1) return undefined;
    return idle.get(greediest);
  }

  #observe(key: string, event: SupervisorEvent): void {
    if (event.kind !== 'state' || !this.#byKey.has(key)) return;
    // Each run starts with a new breaker, as for a shared server.
    if (!isUp(event.from) || !isUp(event.to)) this.#byKey.get(key)?.forgetCircuit();
    if (event.to === 'ready') this.#uses.opened(key);
    else if (event.to !== 'suspect') this.#uses.closed(key);
    // An idle instance is removed; a failed one is retained, because its ledger bounds further restarts.
    if (event.to !== 'registered') return;
    if (this.#uses.held(key).call === 0) this.#end(key);
    else if (this.#subscribed.has(key)) this.#restart(key);
  }

  /** Restarts an idle instance that has subscriptions. */
  #restart(key: string): void {
    // In a later microtask, because the state change is still in progress.
    queueMicrotask(() => {
      const supervisor = this.#byKey.get(key)?.supervisor;
      if (supervisor?.snapshot().state === 'registered') supervisor.begin();
    });
  }

  #end(key: string): void {
    const instance = this.#byKey.get(key);
    if (!instance) return;
    this.#byKey.delete(key);
    this.#uses.remove(key);
    // Includes the end of the earlier instance: this one may end at once because it never started, while the earlier one still
    // stops.
    const all = Promise.all([this.#ending.get(key)?.ended, instance.dispose().catch(this.#parts.onProblem)]);
    const ended = all.then(() => {
      if (this.#ending.get(key) === ending) this.#ending.delete(key);
    });
    const ending = { server: instance.server, ended };
    this.#ending.set(key, ending);
  }
}

const isStopped = (error: unknown): error is HostError =>
  isHostError(error) && (error.code === 'server_stopped' || error.code === 'server_disabled');

const isUp = (state: string): boolean => state === 'ready' || state === 'suspect';

/** Clients never share a process of a server with `isolation: "per-client"`. */
export const instanceMissing = (server: string, tool?: string): HostError =>
  new HostError('invalid_request', `server '${server}' has isolation "per-client", and no client is named`, {
    server,
    ...(tool === undefined ? {} : { tool }),
    field: 'instance',
    phase: 'queued',
    execution: 'not_executed',
    hint: 'pass { instance: "<client>" } with each call: every client has a process of its own',
  });

const tooMany = (server: string): HostError =>
  new HostError('overloaded', `no further client instance of server '${server}' can be started`, {
    server,
    reason: 'instances',
    limit: instancesPerServerMax,
    phase: 'queued',
    execution: 'not_executed',
    hint: `at most ${instancesPerServerMax} instances per server and ${instancesMax} in total; try again when a client has disconnected, shorten keepAlive, or set isolation to shared`,
  });

/**
 * A subscription uses the client's instance or the shared server. The shared server is looked up by name, because it may be
 * replaced.
 */
export function subscriptionTargets(
  servers: Pick<Servers, 'get' | 'find' | 'ready' | 'registry'>,
  instances: Instances,
  clock: Clock,
  runOf: (target: Pick<CallTarget, 'supervisor'>) => ServerRun | undefined,
): (server: string, instance: string | undefined, owner: string) => SubscriptionTarget {
  const sharedTarget = (server: string): SubscriptionTarget => ({
    key: server,
    hold: () => {
      const lease = servers.registry.lease(server);
      return () => lease.release();
    },
    ready: async () => void (await servers.ready(server)),
    run: () => {
      const managed = servers.find(server);
      return managed && runOf(managed);
    },
  });
  return (server, instance, owner) => {
    const managed = servers.get(server);
    const target = instances.targetOf(managed, instance, owner);
    if (instance === undefined || target === managed) return sharedTarget(server);
    const key = instanceKey(server, owner, instance);
    return {
      key,
      hold: () => instances.hold(managed, instance, owner),
      ready: async () => {
        const { startMs } = managed;
        await target.supervisor.acquire(clock.nowMs() + startMs, undefined, startMs);
      },
      run: () => {
        // Looked up by key: a reload replaces the instance.
        const current = instances.find(key);
        return current && runOf(current);
      },
    };
  };
}
