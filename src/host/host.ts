/**
 * The composition root: joins registry, supervisors, policy and sessions into one Host.
 * Every decision is made in the folders above; here is only who is asked in which order, and who is told what.
 */
import { parseHostConfig } from '../config/host-config.js';
import { type Clock, systemClock } from '../kernel/clock.js';
import type { Listener } from '../kernel/emitter.js';
import { HostError } from '../kernel/errors.js';
import { KeepAlive } from '../kernel/keep-alive.js';
import { systemRandom } from '../kernel/random.js';
import { denial, type Guard, type GuardRequest } from '../policy/allowlist.js';
import type { Breaker } from '../policy/breaker.js';
import { type CacheStats, ResponseCache } from '../policy/cache.js';
import type { Principal } from '../policy/call.js';
import { type BudgetPlan, CallBudgets } from '../policy/call-budget.js';
import { memoryPinStore, type PinStatus } from '../policy/pin-store.js';
import { type PinChange, Pins } from '../policy/pins.js';
import { ToolThrottle } from '../policy/tool-throttle.js';
import type { Lease } from '../registry/lease.js';
import { Connector } from '../session/connector.js';
import type { ListMethod } from '../session/lists.js';
import { type ServerCard, ServerCards } from '../session/server-card.js';
import type { ToolArguments } from '../session/session.js';
import { defaultPlan } from '../supervisor/restart-plan.js';
import type { SupervisorEvent } from '../supervisor/supervisor-events.js';
import type { JsonText } from '../wire/frame.js';
import { NOTIFICATION } from '../wire/rpc-codes.js';
import { Audit } from './audit.js';
import { Caller } from './caller.js';
import { Catalogue } from './catalogue.js';
import { ConfiguredServers, type Reconfigured } from './configured-servers.js';
import { Discovery } from './discovery.js';
import { type Explanation, explain } from './explain.js';
import { FirstSight, type Sightings } from './first-sight.js';
import { HistoryKeeper } from './history-keeper.js';
import { type HostEventKind, type HostEventOf, HostEvents } from './host-events.js';
import {
  type Discovered,
  type DiscoverOptions,
  embedder,
  type HostCallOptions,
  type HostConfig,
  type HostItem,
  type HostOptions,
  type HostRequestOptions,
  type HostTool,
  type KnownServer,
  type ListOptions,
  type ResourceResult,
  type ToolResult,
} from './host-interface.js';
import { HostRules } from './host-rules.js';
import { Instances } from './instances.js';
import { Knowledge } from './knowledge.js';
import { LastWords } from './last-words.js';
import { pinsByOrigin } from './pin-origin.js';
import { quietly } from './problems.js';
import { type EraAnswer, Requester } from './requester.js';
import { approvalEvent, schemaEvents } from './schema-events.js';
import { Servers } from './servers.js';
import { type SpawnEntry, type SpawnOptions, spawnDefinition, spawnName } from './spawn-options.js';
import { StateFile } from './state-file.js';
import { type StatusRow, type StatusSources, statusRows } from './status.js';
import { createSupervise } from './supervise.js';
import { openTracing } from './tracing.js';
import { Turns } from './turns.js';

const noOptions: HostCallOptions = {};

export class Host {
  readonly #clock: Clock;
  readonly #connector: Connector;
  readonly #servers: Servers;
  readonly #instances: Instances;
  readonly #events: HostEvents;
  readonly #audit: Audit;
  readonly #budgets: CallBudgets;
  readonly #cache: ResponseCache;
  readonly #throttle: ToolThrottle;
  readonly #pins: Pins;
  readonly #state: StateFile | undefined;
  readonly #catalogue: Catalogue;
  readonly #knowledge: Knowledge;
  readonly #configured: ConfiguredServers;
  readonly #firstSight: FirstSight;
  readonly #discovery: Discovery;
  readonly #learnAtBoot: boolean;
  readonly #histories: HistoryKeeper | undefined;
  readonly #caller: Caller;
  readonly #requester: Requester;
  readonly #onProblem: (error: unknown) => void;
  readonly #lastWords = new LastWords();
  readonly #alive = new KeepAlive();
  readonly #rules = new HostRules((server) => this.#servers.find(server)?.definition.tools);
  /** Readings of the configuration, one after the other. */
  readonly #readings = new Turns();
  #closing: Promise<void> | undefined;

  constructor(options: HostOptions = {}) {
    const { clock = systemClock, random = systemRandom, stateDir, ambient } = options;
    const onProblem = quietly(options.onProblem ?? (() => {}));
    this.#clock = clock;
    this.#onProblem = onProblem;
    this.#connector = new Connector({
      client: options.client ?? { name: 'hostler', version: '0', capabilities: {} },
      clock,
      random,
      onProblem,
      onAuth: (server, status) => this.#events.tell(server, { kind: 'auth', status }),
      ...(stateDir === undefined ? {} : { stateDir }),
      ...(ambient === undefined ? {} : { ambient }),
      ...(options.redactor === undefined ? {} : { redactor: options.redactor }),
    });
    this.#budgets = new CallBudgets(clock, () => this.#rules.ceilings);
    this.#cache = new ResponseCache(clock);
    this.#throttle = new ToolThrottle(clock);
    this.#state = stateDir === undefined ? undefined : StateFile.open(stateDir, onProblem);
    this.#histories = this.#state && new HistoryKeeper(this.#state.histories, clock, onProblem);
    this.#pins = new Pins({
      store: pinsByOrigin(this.#state?.pins ?? memoryPinStore(), (server) => this.#servers.get(server).definition.spec),
      policyOf: (server) => this.#servers.get(server).definition.pins,
      onStoreError: onProblem,
    });
    this.#events = new HostEvents(clock, (event) => this.#observe(event), onProblem);
    this.#audit = new Audit(this.#events, clock);
    const supervise = createSupervise({
      clock,
      random,
      connector: this.#connector,
      events: this.#events.supervisors,
      reading: (name) => this.#catalogue.reading(name),
      heard: (name, method, params, instance) => {
        this.#catalogue.heard(name, method, params);
        if (method === NOTIFICATION.resourceUpdated) this.#knowledge.subscriptions.updated(instance ?? name, params);
      },
      opened: (name, session, announce) => this.#knowledge.runs.opened(name, session, announce),
      openedOf: (instance, session) => this.#knowledge.runs.openedOf(instance, session),
      onChannel: (name, channel) => this.#lastWords.opened(name, channel),
      onProblem,
      authProvider: options.authProvider,
      histories: this.#histories,
    });
    const isSubscribed = (key: string) => this.#knowledge.subscriptions.uris(key).length > 0;
    this.#instances = new Instances({ clock, supervise, isSubscribed, onProblem });
    this.#servers = new Servers({
      clock,
      supervise,
      onCircuit: (name) => (from, to, failures) => this.#events.tell(name, { kind: 'breaker', from, to, failures }),
      forget: (name) => {
        this.#forget(name);
        this.#pins.forget(name);
        this.#throttle.forget(name);
        this.#lastWords.forget(name);
      },
      recall: (managed, before) => this.#catalogue.recall(managed, before),
    });
    const serverOf = (name: string) => this.#servers.get(name);
    const findServer = (name: string) => this.#servers.find(name);
    const { clean } = this.#connector;
    this.#configured = new ConfiguredServers(this.#servers, onProblem);
    this.#firstSight = new FirstSight(clock);
    this.#knowledge = new Knowledge({
      clock,
      servers: this.#servers,
      targetOf: this.#instances.targetOf,
      pins: this.#pins,
      manifests: this.#state?.manifests,
      reads: {
        chargeRead: (server, uri, principal) => this.#catalogue.chargeRead(server, uri, principal),
        mayRead: (server, principal) => this.#catalogue.mayRead(server, principal),
      },
      clean,
      onProblem,
    });
    const guards = () => this.#rules.guards;
    const known = {
      clock,
      names: () => this.#servers.names(),
      serverOf,
      findServer,
      guards,
      pins: this.#pins,
      budgets: this.#budgets,
      known: this.#knowledge.known,
      cards: new ServerCards({ clock, random, clean }),
      clean,
      alive: this.#alive,
      onDenied: this.#audit.denied,
      onToolsChanged: (name: string) => this.#cache.drop(name),
      onPins: (name: string, changes: readonly PinChange[]) => {
        for (const event of schemaEvents(changes)) this.#events.tell(name, event);
      },
      onProblem,
    };
    this.#catalogue = new Catalogue(known);
    this.#discovery = new Discovery({
      ...known,
      catalogue: this.#catalogue,
      isSeen: (managed) => this.#knowledge.known.isSeen(managed),
      listsRead: async (managed) => this.#knowledge.runs.of(managed)?.listsRead,
    });
    this.#learnAtBoot = options.learnAtBoot ?? false;
    this.#caller = new Caller({
      clock,
      guards,
      pins: this.#pins,
      budgets: this.#budgets,
      cache: this.#cache,
      throttle: this.#throttle,
      serverOf,
      findServer: (name) => this.#servers.find(name),
      targetOf: this.#instances.targetOf,
      mustBeOpen: (server) => this.#servers.mustBeOpen(server),
      clean: this.#connector.clean,
      audit: this.#audit,
      alive: this.#alive,
    });
    this.#requester = new Requester({ ...known, targetOf: this.#instances.targetOf });
  }

  /** Takes down what an earlier host left, then starts what is to run. A bad entry is reported and left out. */
  async open(config: HostConfig): Promise<void> {
    const settings = parseHostConfig(config, this.#onProblem);
    this.#audit.tracing = await openTracing(settings.telemetry, this.#onProblem);
    this.#rules.configure(settings);
    await this.#connector.reapLeftovers();
    this.#configured.declare(settings.mcpServers);
    this.#firstSight.begin(this.#discovery.seeStarting(), this.#learnUnseen());
  }

  /**
   * Takes another configuration: only servers whose entry changed are started anew, and roles, budgets and groups hold from
   * the next call on. One that cannot be read as a whole is thrown, and changes nothing; an entry that cannot be read is told
   * and leaves its server as it was. Resolves when what was taken out is gone.
   */
  reconfigure(config: HostConfig): Promise<Reconfigured> {
    return this.#readings.take('', async () => {
      if (this.#closing !== undefined) throw closed();
      const settings = parseHostConfig(config, this.#onProblem);
      const tracing = await openTracing(settings.telemetry, this.#onProblem);
      // Nothing is thrown from here on.
      this.#audit.tracing = tracing;
      this.#rules.configure(settings);
      const before = this.#servers.names();
      const applied = this.#configured.apply(settings.mcpServers, new Set(Object.keys(config.mcpServers ?? {})));
      this.#rulesChanged(before);
      this.#learnUnseen();
      return applied;
    });
  }

  /**
   * Adds a server and, unless it is lazy, waits until it is ready. When it does not become ready nothing of it stays, and one
   * that it was to replace is back. The same definition again is no error, and starts a server that was stopped; another one
   * needs `replace`.
   */
  async spawn(entry: SpawnEntry, options: SpawnOptions = {}): Promise<string> {
    const name = spawnName(entry);
    this.#mustBeAllowed({ principal: embedder, server: name, tool: undefined, action: 'spawn' });
    await this.#servers.spawn(spawnDefinition(entry, options), options.replace ?? false);
    return name;
  }

  call(server: string, tool: string, args: ToolArguments = {}, options = noOptions): Promise<ToolResult> {
    return this.#caller.call(server, tool, args, options);
  }

  /**
   * Any other request, such as `prompts/get`. What the server answers is the answer, an error too; a HostError is thrown when
   * none came.
   */
  request(server: string, method: string, params?: JsonText, options?: HostRequestOptions): Promise<EraAnswer> {
    return this.#requester.request(server, method, params, options);
  }

  /** A client is gone: the instances that it had of servers with `isolation: "per-client"` are stopped. */
  endInstance(instance: string): void {
    this.#instances.end(instance);
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

  /**
   * The card of a server, by its name; or one at a URL or path, which reaches whatever this process can reach. For operators:
   * no guard is asked and nothing is filtered, so never hand it a text of a caller or of a model.
   */
  card(nameOrSource: string): Promise<ServerCard> {
    return this.#discovery.card(nameOrSource);
  }

  status(): StatusRow[] {
    if (this.#closing !== undefined) return [];
    return statusRows(this.#statusSources());
  }

  /**
   * Why the principal sees the server, or one tool of it, and what a call would meet now. Nothing is charged, started or told.
   * Without a principal it is about whoever embeds the host.
   */
  explain(server: string, tool?: string, principal: Principal = embedder): Explanation {
    const managed = this.#servers.get(server);
    const { definition, supervisor } = managed;
    const nowMs = this.#clock.nowMs();
    const sources = this.#statusSources();
    const row = statusRows({ ...sources, registry: only(server, sources.registry) })[0] as StatusRow;
    const action = tool === undefined ? 'list' : 'call';
    const record = tool === undefined ? undefined : this.#pins.recordOf(server, tool);
    const isKnown = managed.tools.length > 0 || row.active;
    return explain({
      definition,
      principal,
      tool,
      isListed: isKnown ? managed.tools.some(({ key }) => key === tool) : undefined,
      denial: denial(() => this.#rules.guards, { principal, server, tool, action }),
      row,
      breakerRetryAfterMs: row.circuit === 'closed' ? undefined : breakerWait(managed.breaker, nowMs),
      cacheEntries: this.#cache.entriesOf(server, tool),
      budget: this.#budgets.leftOf(principal),
      pin: tool === undefined ? undefined : { status: this.#pins.statusOf(server, tool), record },
      refusal: supervisor.refusal(),
      wakeAfterMs: defaultPlan.wakeAfterMs,
    });
  }

  /**
   * The end of what the process of a server wrote to stderr, redacted and neutralised; that of the last one until the next has
   * written something. Undefined when it never had a process.
   */
  stderr(server: string, maxBytes?: number): string | undefined {
    return this.#lastWords.of(this.#servers.get(server).definition.name, maxBytes);
  }

  /** Holds a server open until it is given back. */
  async lease(server: string): Promise<Lease> {
    const lease = this.#servers.registry.lease(server);
    try {
      await this.#servers.ready(server);
      return lease;
    } catch (error) {
      lease.release();
      throw error;
    }
  }

  async start(server: string): Promise<void> {
    this.#servers.get(server).supervisor.start();
    await this.#servers.ready(server);
  }

  /** Sticky: neither calls nor timers bring it back. */
  async stop(server: string): Promise<void> {
    const { supervisor } = this.#servers.get(server);
    this.#forget(server);
    await Promise.all([supervisor.stop(), this.#instances.endOf(server)]);
  }

  /** Forgives everything and starts afresh; a lazy server when it is next wanted. */
  async reload(server: string): Promise<void> {
    const managed = this.#servers.get(server);
    managed.forgetCircuit();
    this.#throttle.forget(server);
    this.#forget(server);
    await Promise.all([managed.supervisor.reload(), this.#instances.endOf(server)]);
  }

  /** What the definition of a tool is held against, and what is listed now; undefined for a tool that was never seen. */
  pin(server: string, tool: string): { readonly status: PinStatus; readonly hash: string | undefined } | undefined {
    const record = this.#pins.recordOf(server, tool);
    return record && { status: this.#pins.statusOf(server, tool), hash: (record.pending ?? record.approved)?.hash };
  }

  /** From now on this very version of the tool is the one to hold it against. */
  approve(server: string, tool: string, hash: string): void {
    const before = this.#pins.recordOf(server, tool);
    this.#pins.approve(server, tool, hash, this.#clock.date());
    const event = approvalEvent(tool, before, this.#pins.recordOf(server, tool));
    if (event) this.#events.tell(server, event);
    this.#catalogue.judgeAnew(server);
  }

  cacheStats(): CacheStats {
    return this.#cache.stats();
  }

  /** Several guards combine by AND, also with the roles of the configuration; none takes back the ones given before. */
  setAllowlist(...guards: readonly Guard[]): void {
    this.#rules.setOwn(guards);
    this.#rulesChanged();
  }

  // --- what a gateway shows

  /** In their order. */
  names(): readonly string[] {
    return this.#servers.names();
  }

  /** What can be said of a server at once, and without starting it; undefined when there is none of that name. */
  known(server: string): KnownServer | undefined {
    return this.#closing === undefined ? this.#knowledge.known.known(server) : undefined;
  }

  /** Told after what is known of a server, its state, or what may be seen of it changed. Returns what ends it. */
  onKnownChanged(listener: (server: string) => void): () => void {
    return this.#knowledge.known.onChanged(listener);
  }

  /** Whether the principal may see the server at all (`tool` undefined) or call this tool. Nothing is charged or told. */
  isAllowed(principal: Principal, server: string, tool: string | undefined): boolean {
    const action = tool === undefined ? 'list' : 'call';
    return denial(() => this.#rules.guards, { principal, server, tool, action }) === undefined;
  }

  /** Counts up when guards or roles may have changed. */
  get rulesRevision(): number {
    return this.#rules.revision;
  }

  /**
   * For who lists servers: resolves when these, or all, were seen once, at the latest 5 s after anybody first asked; undefined:
   * no need to wait.
   */
  firstSight(servers?: readonly string[]): Promise<void> | undefined {
    return this.#firstSight.wait(servers);
  }

  /** For who only watches: resolves when every server was seen once, however long that takes. Undefined: they were. */
  whenSeen(): Promise<void> | undefined {
    return this.#firstSight.whenSeen();
  }

  /**
   * Holds the server open and tells of each update of the resource, over restarts too, until what it returns is called.
   * `instance`: the client, as in calls, where each has a process of its own.
   */
  subscribe(
    server: string,
    uri: string,
    principal: Principal,
    updated: (params: Buffer) => void,
    instance?: string,
  ): Promise<() => void> {
    return this.#knowledge.subscriptions.subscribe(server, uri, principal, updated, instance);
  }

  /** Servers by group, as configured. */
  get groups(): ReadonlyMap<string, readonly string[]> {
    return this.#rules.groups;
  }

  withBudget<T>(plan: BudgetPlan, run: () => T): T {
    return this.#budgets.withBudget(plan, run);
  }

  /** `any` hears every event. Returns the function that takes the listener off again. */
  on<Kind extends HostEventKind | 'any'>(kind: Kind, listener: Listener<HostEventOf<Kind>>): () => void {
    return this.#events.on(kind, listener);
  }

  /** Stops every server; resolves when nothing of this host runs. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    try {
      // Whatever is wrong with one server, the others and all that they started go too.
      await Promise.all([this.#servers.close().catch(this.#onProblem), this.#instances.close()]);
      this.#histories?.flush();
      this.#servers.registry.clear();
    } finally {
      await this.#connector.close();
      this.#alive.close();
    }
  }

  #statusSources(): StatusSources {
    return {
      clock: this.#clock,
      registry: this.#servers.registry,
      serverOf: (name) => this.#servers.get(name),
      cache: this.#cache,
      pins: this.#pins,
      connector: this.#connector,
      instances: this.#instances,
    };
  }

  #mustBeAllowed(request: GuardRequest): void {
    const refused = denial(() => this.#rules.guards, request);
    if (!refused) return;
    this.#audit.denied(request);
    throw refused;
  }

  /** Nothing that it answered before counts any more. */
  #forget(server: string): void {
    this.#cache.drop(server);
    this.#catalogue.drop(server);
    void this.#instances.endOf(server);
    this.#knowledge.known.changed(server);
  }

  /** Others decide now who may see what. */
  #rulesChanged(servers: readonly string[] = this.#servers.names()): void {
    this.#catalogue.dropAll();
    for (const server of servers) this.#knowledge.known.changed(server);
  }

  #learnUnseen(): Sightings {
    return this.#learnAtBoot ? this.#discovery.learnUnseen() : new Map();
  }

  #observe(event: SupervisorEvent): void {
    if (event.kind === 'state' && event.to === 'connecting') this.#catalogue.drop(event.server);
    this.#servers.observe(event);
    this.#knowledge.runs.observe(event);
  }
}

const closed = (): HostError =>
  new HostError('server_stopped', 'the host is closed', { reason: 'closed', execution: 'not_executed' });
/** The same registry with one server in it. */
const only = (server: string, registry: StatusSources['registry']): StatusSources['registry'] => ({
  snapshot: () => registry.snapshot().filter(({ name }) => name === server),
  held: (name) => registry.held(name),
});

function breakerWait(breaker: Breaker, nowMs: number): number | undefined {
  const atMs = breaker.opensAgainAtMs(nowMs);
  return atMs === undefined ? undefined : Math.max(0, Math.ceil(atMs - nowMs));
}

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
