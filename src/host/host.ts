/**
 * The composition root: joins registry, supervisors, policy and sessions into one Host.
 * Every decision is made in the folders above; here is only who is asked in which order, and who is told what.
 */
import { parseHostConfig } from '../config/host-config.js';
import { parseServerDefinition, type ServerDefinition } from '../config/server-definition.js';
import { type Clock, systemClock } from '../kernel/clock.js';
import { Emitter, type Listener } from '../kernel/emitter.js';
import { HostError } from '../kernel/errors.js';
import { KeepAlive } from '../kernel/keep-alive.js';
import { newId, systemRandom } from '../kernel/random.js';
import { allow, denial, type Guard } from '../policy/allowlist.js';
import { type CacheStats, ResponseCache } from '../policy/cache.js';
import { cached } from '../policy/cache-stage.js';
import { type Call, type Outcome, pipeline, type Send } from '../policy/call.js';
import { type BudgetPlan, budget, CallBudgets } from '../policy/call-budget.js';
import { concurrency } from '../policy/concurrency.js';
import { gate } from '../policy/gate.js';
import { pinned } from '../policy/pin-stage.js';
import { memoryPinStore, type PinStatus } from '../policy/pin-store.js';
import { Pins } from '../policy/pins.js';
import { SingleFlight } from '../policy/single-flight.js';
import { ToolThrottle, throttle } from '../policy/tool-throttle.js';
import type { Lease } from '../registry/lease.js';
import { Registry } from '../registry/registry.js';
import { Connector } from '../session/connector.js';
import type { ListMethod } from '../session/lists.js';
import { type ServerCard, ServerCards } from '../session/server-card.js';
import type { ToolArguments } from '../session/session.js';
import type { SupervisorEvent, SupervisorEvents } from '../supervisor/supervisor-events.js';
import { Catalogue } from './catalogue.js';
import { Discovery } from './discovery.js';
import { dispatch } from './dispatch.js';
import { HistoryKeeper } from './history-keeper.js';
import {
  type Discovered,
  type DiscoverOptions,
  embedder,
  type HostCallOptions,
  type HostConfig,
  type HostItem,
  type HostOptions,
  type HostTool,
  type ListOptions,
  type ResourceResult,
  type ToolResult,
} from './host-interface.js';
import { HostRules } from './host-rules.js';
import { ManagedServer } from './managed-server.js';
import { pinsByOrigin } from './pin-origin.js';
import { type SpawnOptions, treatmentOf } from './spawn-options.js';
import { openState, type StateFile } from './state-file.js';
import { type StatusRow, statusRow } from './status.js';
import { createSupervise, type Supervised } from './supervise.js';

const callDeadlineMs = 60_000;
const noOptions: HostCallOptions = {};

export class Host {
  readonly #clock: Clock;
  readonly #connector: Connector;
  readonly #registry: Registry<ServerDefinition>;
  readonly #servers = new Map<string, ManagedServer>();
  readonly #events = new Emitter<SupervisorEvents>();
  readonly #budgets: CallBudgets;
  readonly #cache: ResponseCache;
  readonly #throttle: ToolThrottle;
  readonly #pins: Pins;
  readonly #state: StateFile | undefined;
  readonly #catalogue: Catalogue;
  readonly #discovery: Discovery;
  readonly #learnAtBoot: boolean;
  readonly #histories: HistoryKeeper | undefined;
  readonly #supervise: (definition: ServerDefinition) => Supervised;
  readonly #send: Send;
  readonly #onProblem: (error: unknown) => void;
  /** Unguessable once per host; each call adds its number. */
  readonly #id = newId();
  #calls = 0;
  readonly #alive = new KeepAlive();
  readonly #rules = new HostRules();
  #guards: readonly Guard[] = [];
  #closing: Promise<void> | undefined;

  constructor(options: HostOptions = {}) {
    const { clock = systemClock, random = systemRandom, stateDir, ambient, onProblem = () => {} } = options;
    this.#clock = clock;
    this.#onProblem = onProblem;
    this.#connector = new Connector({
      client: options.client ?? { name: 'hostler', version: '0', capabilities: {} },
      clock,
      random,
      onProblem,
      ...(stateDir === undefined ? {} : { stateDir }),
      ...(ambient === undefined ? {} : { ambient }),
    });
    this.#registry = new Registry({ clock, onIdle: (name) => this.#servers.get(name)?.supervisor.idle() });
    this.#budgets = new CallBudgets(clock, () => this.#rules.ceilings);
    this.#cache = new ResponseCache(clock);
    this.#throttle = new ToolThrottle(clock);
    this.#state = stateDir === undefined ? undefined : openState(stateDir, onProblem);
    this.#histories = this.#state && new HistoryKeeper(this.#state.histories, clock, onProblem);
    this.#pins = new Pins({
      store: pinsByOrigin(this.#state?.pins ?? memoryPinStore(), (server) => this.#server(server).definition.spec),
      policyOf: (server) => this.#server(server).definition.pins,
    });
    this.#supervise = createSupervise({
      clock,
      random,
      connector: this.#connector,
      events: this.#events,
      reading: (name) => this.#catalogue.reading(name),
      heard: (name, method, params) => this.#catalogue.heard(name, method, params),
      onProblem,
      authProvider: options.authProvider,
      histories: this.#histories,
    });
    const known = {
      clock,
      names: () => this.#registry.list().map(({ name }) => name),
      serverOf: (name: string) => this.#server(name),
      findServer: (name: string) => this.#servers.get(name),
      guards: () => this.#guards,
      pins: this.#pins,
      manifests: this.#state?.manifests,
      cards: new ServerCards({ clock, random, clean: this.#connector.clean }),
      clean: this.#connector.clean,
      alive: this.#alive,
      onToolsChanged: (name: string) => this.#cache.drop(name),
      onProblem,
    };
    this.#catalogue = new Catalogue(known);
    this.#discovery = new Discovery({ ...known, catalogue: this.#catalogue });
    this.#learnAtBoot = options.learnAtBoot ?? false;
    this.#events.on('supervisor', (event) => this.#observe(event));
    const breakerOf = (server: string) => this.#server(server).breaker;
    const slotsOf = (server: string) => this.#server(server).slots;
    // The order is part of the contract: who is refused early changes nothing that comes later.
    this.#send = pipeline(
      allow(() => this.#guards),
      pinned(
        (server, tool) => this.#pins.statusOf(server, tool),
        (server) => this.#server(server).definition.pins,
      ),
      budget(this.#budgets),
      cached({
        cache: this.#cache,
        flights: new SingleFlight(clock),
        mayCache: ({ server }) => this.#server(server).definition.cache === 'on',
        fingerprintOf: ({ server }) => this.#server(server).fingerprint,
        traitsOf: ({ server, tool }) => this.#server(server).traitsOf(tool),
      }),
      throttle(this.#throttle),
      gate(breakerOf, clock),
      concurrency(slotsOf),
    )(dispatch((server) => this.#server(server), clock, this.#connector.clean));
  }

  /** Takes down what an earlier host left, then starts what is to run. A bad entry is reported and left out. */
  async open(config: HostConfig): Promise<void> {
    const settings = parseHostConfig(config, this.#onProblem);
    this.#guards = this.#rules.configure(settings);
    await this.#connector.reapLeftovers();
    for (const definition of settings.mcpServers.values()) await this.#add(definition, false).catch(this.#onProblem);
    if (this.#learnAtBoot) this.#discovery.learnUnseen().catch(this.#onProblem);
  }

  /**
   * Adds a server and, unless it is lazy, waits until it is ready. When it does not become ready nothing of it stays.
   * The same definition again is no error; another one needs `replace`.
   */
  async spawn(
    entry: { readonly name: string } & Readonly<Record<string, unknown>>,
    options: SpawnOptions = {},
  ): Promise<string> {
    const { name, ...rest } = entry;
    if (typeof name !== 'string' || name === '') {
      throw new HostError('invalid_spec', 'a server needs a name', { field: 'name', hint: 'give it as "name"' });
    }
    const refused = denial(() => this.#guards, { principal: embedder, server: name, tool: undefined, action: 'spawn' });
    if (refused) throw refused;
    const definition = parseServerDefinition(name, { ...rest, ...treatmentOf(options) }, false);
    const isNew = await this.#add(definition, options.replace ?? false);
    if (definition.isLazy || !definition.isEnabled) return name;
    try {
      await this.#server(name).supervisor.acquire(this.#clock.nowMs() + definition.timeouts.startMs);
    } catch (error) {
      if (isNew) await this.#remove(name);
      throw error;
    }
    return name;
  }

  call(server: string, tool: string, args: ToolArguments = {}, options = noOptions): Promise<ToolResult> {
    if (this.#closing !== undefined) return Promise.reject(closedHost(server));
    const call: Call = {
      requestId: `${this.#id}-${++this.#calls}`,
      principal: options.principal ?? embedder,
      server,
      tool,
      args: typeof args === 'string' || args instanceof Uint8Array ? args : JSON.stringify(args),
      deadlineAtMs: this.#clock.nowMs() + (options.deadlineMs ?? callDeadlineMs),
      signal: options.signal,
      idempotencyKey: options.idempotencyKey,
      onProgress: options.onProgress,
      attempt: options.attempt ?? 0,
    };
    return this.#whileAlive(call);
  }

  /** The tools of one server, as far as the principal may call them. */
  tools(server: string, options?: ListOptions): Promise<HostTool[]> {
    return this.#catalogue.tools(server, options);
  }

  /** One list of one server; kept for as long as the server says. */
  list(server: string, method: ListMethod, options?: ListOptions): Promise<HostItem[]> {
    return this.#catalogue.list(server, method, options);
  }

  /** One resource; kept for as long as the server says. */
  read(server: string, uri: string, options?: ListOptions): Promise<ResourceResult> {
    return this.#catalogue.read(server, uri, options);
  }

  /** All servers, some at a time, each in its own time; one that fails is told as an error and disturbs nobody. */
  discover(options?: DiscoverOptions): Promise<Discovered[]> {
    return this.#discovery.discover(options);
  }

  /** The card of a server, by its name; or one at a URL or path. For operators: nothing in it is filtered. */
  card(nameOrSource: string): Promise<ServerCard> {
    return this.#discovery.card(nameOrSource);
  }

  status(): StatusRow[] {
    if (this.#closing !== undefined) return [];
    const nowMs = this.#clock.nowMs();
    return this.#registry.snapshot().map((row) => statusRow(row, this.#server(row.name), nowMs));
  }

  /** Holds a server open until it is given back. */
  async lease(server: string): Promise<Lease> {
    const managed = this.#server(server);
    const lease = this.#registry.lease(server);
    try {
      await managed.supervisor.acquire(this.#clock.nowMs() + managed.definition.timeouts.startMs);
      return lease;
    } catch (error) {
      lease.release();
      throw error;
    }
  }

  async start(server: string): Promise<void> {
    const managed = this.#server(server);
    managed.supervisor.start();
    await managed.supervisor.acquire(this.#clock.nowMs() + managed.definition.timeouts.startMs);
  }

  /** Sticky: neither calls nor timers bring it back. */
  async stop(server: string): Promise<void> {
    const { supervisor } = this.#server(server);
    this.#forget(server);
    await supervisor.stop();
  }

  /** Forgives everything and starts afresh; a lazy server when it is next wanted. */
  async reload(server: string): Promise<void> {
    const managed = this.#server(server);
    managed.breaker.reset();
    this.#throttle.forget(server);
    this.#forget(server);
    await managed.supervisor.reload();
  }

  /** What the definition of a tool is held against, and what is listed now; undefined for a tool that was never seen. */
  pin(server: string, tool: string): { readonly status: PinStatus; readonly hash: string | undefined } | undefined {
    const record = this.#pins.recordOf(server, tool);
    return record && { status: this.#pins.statusOf(server, tool), hash: (record.pending ?? record.approved)?.hash };
  }

  /** From now on this very version of the tool is the one to hold it against. */
  approve(server: string, tool: string, hash: string): void {
    this.#pins.approve(server, tool, hash, this.#clock.date());
    this.#catalogue.judgeAnew(server);
  }

  cacheStats(): CacheStats {
    return this.#cache.stats();
  }

  /** Several guards combine by AND, also with the roles of the configuration; none takes back the ones given before. */
  setAllowlist(...guards: readonly Guard[]): void {
    this.#guards = this.#rules.setOwn(guards);
    this.#catalogue.dropAll();
  }

  /** Servers by group, as configured. */
  get groups(): ReadonlyMap<string, readonly string[]> {
    return this.#rules.groups;
  }

  withBudget<T>(plan: BudgetPlan, run: () => T): T {
    return this.#budgets.withBudget(plan, run);
  }

  /** `any` hears every event. Returns the function that takes the listener off again. */
  on(kind: SupervisorEvent['kind'] | 'any', listener: Listener<SupervisorEvent>): () => void {
    return this.#events.on('supervisor', (event) => {
      if (kind === 'any' || event.kind === kind) listener(event);
    });
  }

  /** Stops every server; resolves when nothing of this host runs. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  /** The process does not end while somebody waits: the clock's timers, which a call may hang on, would not keep it. */
  #whileAlive(call: Call): Promise<ToolResult> {
    this.#alive.hold();
    return new Promise((resolve, reject) => {
      const done = (outcome: Outcome) => {
        this.#alive.letGo();
        if (outcome instanceof Error) reject(outcome);
        else resolve(outcome);
      };
      try {
        this.#send(call, done);
      } catch (error) {
        done(error as Error);
      }
    });
  }

  async #close(): Promise<void> {
    await Promise.all([...this.#servers.values()].map((managed) => managed.dispose()));
    this.#histories?.flush();
    this.#registry.clear();
    await this.#connector.close();
    this.#alive.close();
  }

  #server(name: string): ManagedServer {
    if (this.#closing !== undefined) throw closedHost(name);
    const managed = this.#servers.get(name);
    if (managed) return managed;
    this.#registry.get(name);
    throw new HostError('server_not_found', `no server named '${name}'`, { server: name });
  }

  /** False: it was there already, with the same definition. */
  async #add(definition: ServerDefinition, replace: boolean): Promise<boolean> {
    const { name, isLazy, keepAliveMs, card } = definition;
    const outcome = this.#registry.register(
      { name, spec: definition, isLazy, keepAliveMs, origin: 'spawned', card },
      { replace },
    );
    if (outcome === 'unchanged') return false;
    this.#forget(name);
    // Never two of a kind: the old one is gone before the new one starts.
    await this.#servers.get(name)?.dispose();
    const hold = this.#registry.callHold(name);
    const { supervisor, auth } = this.#supervise(definition);
    const managed = new ManagedServer(definition, supervisor, hold, this.#clock, auth);
    this.#servers.set(name, managed);
    this.#pins.forget(name);
    this.#throttle.forget(name);
    this.#catalogue.recall(managed);
    if (!isLazy && definition.isEnabled) managed.supervisor.begin();
    return outcome === 'added';
  }

  async #remove(name: string): Promise<void> {
    const managed = this.#servers.get(name);
    this.#servers.delete(name);
    this.#registry.remove(name);
    this.#forget(name);
    await managed?.dispose();
  }

  /** Nothing that it answered before counts any more. */
  #forget(server: string): void {
    this.#cache.drop(server);
    this.#catalogue.drop(server);
  }

  #observe(event: SupervisorEvent): void {
    if (event.kind !== 'state') return;
    if (event.to === 'connecting') this.#catalogue.drop(event.server);
    const managed = this.#servers.get(event.server);
    if (event.to === 'ready') {
      // The handshake of a new run was the probe.
      managed?.breaker.reset();
      this.#registry.opened(event.server);
    } else if (event.from === 'ready' || event.from === 'suspect') {
      if (event.to !== 'suspect') this.#registry.closed(event.server);
    }
  }
}

const closedHost = (server: string) =>
  new HostError('server_stopped', `server '${server}' is not called: the host is closed`, {
    server,
    reason: 'closed',
    execution: 'not_executed',
  });

export async function createHost(config: HostConfig, options: HostOptions = {}): Promise<Host> {
  const host = new Host(options);
  try {
    await host.open(config);
    return host;
  } catch (error) {
    await host.close();
    throw error;
  }
}
