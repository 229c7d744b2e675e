/**
 * The public methods of a host. They call the parts in order; the decisions are in the parts and in the folders above.
 * Not here: creating the parts (host-parts.ts), the types of options and results (host-interface.ts).
 */
import type { KnownServer } from '../catalog/catalog-server.js';
import type { Discovered, DiscoverOptions } from '../catalog/discovery.js';
import type { HostItem, HostTool } from '../catalog/pinned-tools.js';
import { loadLibsql } from '../catalog/store/libsql.js';
import { copyEntry } from '../config/copy-config.js';
import { parseHostConfig } from '../config/host-config.js';
import type { ServerDefinition } from '../config/server-definition.js';
import { isAttached } from '../config/server-spec.js';
import type { Listener } from '../kernel/emitter.js';
import { HostError } from '../kernel/errors.js';
import { KeyedMutex } from '../kernel/keyed-mutex.js';
import { denial, type Guard, type GuardRequest } from '../policy/allowlist.js';
import type { CacheStats } from '../policy/cache.js';
import { type EraAnswer, embedder, type Principal } from '../policy/operation.js';
import type { BudgetPlan } from '../policy/rate-limit.js';
import { mayRunTwice } from '../policy/retry.js';
import type { ListMethod } from '../session/lists.js';
import type { ServerCard } from '../session/server-card.js';
import type { ToolArguments } from '../session/session.js';
import type { Lease } from '../supervisor/registry.js';
import type { Attachable, AttachFactory } from '../transports/attached/attachable.js';
import type { StderrLine } from '../transports/stdio/stderr-ring.js';
import type { JsonText } from '../wire/channel.js';
import type { Approvals, ListedPin } from './approvals.js';
import type { CallMeter } from './audit.js';
import { changeConfiguration, publishRules, type Reconfigured } from './configured-servers.js';
import { type Explanation, explain, gatherFacts } from './explain.js';
import type { HostEventKind, HostEventOf } from './host-events.js';
import {
  type HostConfig,
  type HostOptions,
  type HostRequestOptions,
  type JointChange,
  type ListOptions,
  noCallOptions,
  type ResourceResult,
  type ToolResult,
} from './host-interface.js';
import { closeHostParts, createHostParts, type HostParts, type MakeConnector } from './host-parts.js';
import { callOnce, KeyedCallLogs, type KeyedCalls } from './keyed-calls.js';
import {
  type AttachOptions,
  attachDefinition,
  type SpawnEntry,
  type SpawnOptions,
  spawnDefinition,
  spawnName,
} from './spawn.js';
import { type StatusRow, statusRows, type UnroutedOf } from './status.js';
import { openTracing } from './tracing.js';

export class Host {
  readonly #parts: HostParts;
  readonly #reconfigurations = new KeyedMutex();
  readonly #keyedCalls = new KeyedCallLogs();
  #closing: Promise<void> | undefined;

  /** `makeConnector`: for simulations only. */
  constructor(options: HostOptions = {}, makeConnector?: MakeConnector) {
    this.#parts = createHostParts(options, makeConnector);
  }

  /** Ends processes of an earlier host, then starts the servers. An invalid entry is reported and becomes a disabled server. */
  async open(config: HostConfig): Promise<void> {
    const settings = parseHostConfig(config, this.#parts.onConfigProblem, this.#parts.secrets !== undefined);
    this.#parts.audit.tracing = await openTracing(settings.telemetry, this.#parts.onProblem);
    this.#parts.rules.configure(settings);
    this.#parts.secrets?.configure(settings.secrets.exec);
    await this.#parts.connector.reapLeftovers();
    this.#parts.configured.declare(settings);
    this.#parts.startupListing.begin();
  }

  /**
   * Applies another configuration. Only changed servers restart; roles, budgets and groups apply from the next call on. An
   * invalid configuration throws and changes nothing; an invalid entry is reported and its server stays unchanged. Resolves
   * when removed servers have ended. `joint`: changes for the same tick, such as the keys of a gateway.
   */
  async reconfigure(config: HostConfig, joint?: JointChange): Promise<Reconfigured> {
    const { applied } = await this.#reconfigurations.runExclusive('', async () => {
      this.#mustBeOpen();
      const settings = parseHostConfig(config, this.#parts.onConfigProblem, this.#parts.secrets !== undefined);
      const tracing = await openTracing(settings.telemetry, this.#parts.onProblem);
      this.#mustBeOpen();
      const applied = changeConfiguration(this.#parts, settings, tracing, joint);
      this.#parts.startupListing.listUnlisted();
      // Wrapped in an object, so that the mutex does not wait until removed servers have stopped.
      return { applied };
    });
    return applied;
  }

  /**
   * Adds a server and, unless it is lazy, waits until it is ready. If the start fails, the server is removed and a replaced
   * server is restored. Spawning an equal definition starts a stopped server; a different one needs `replace`.
   */
  async spawn(entry: SpawnEntry, options: SpawnOptions = {}): Promise<string> {
    const given = copyEntry(entry, 'the server') as SpawnEntry;
    const name = spawnName(given);
    await this.#add(name, () => spawnDefinition(given, options), options.replace);
    return name;
  }

  /**
   * Adds a connection of the application as a server: an unstarted transport, an unconnected server of an MCP SDK, or a factory
   * of them. The host does the handshake and closes the connection. Resolves and fails like `spawn`.
   */
  async attach(name: string, source: Attachable | AttachFactory, options: AttachOptions = {}): Promise<void> {
    const definition = attachDefinition(name, source, options);
    await this.#add(name, () => definition, options.replace);
  }

  /** Closes and removes an attached server. Resolves when it is closed, after at most 5 s. */
  async detach(name: string): Promise<void> {
    this.#parts.servers.mustBeAttached(name);
    await Promise.all([this.#parts.servers.detach(name), this.#parts.instances.endOf(name)]);
  }

  /**
   * With an `idempotencyKey` the tool runs once for that key of the principal, also over restarts with a `stateDir`. The key is
   * remembered for a day. The same key with other arguments is a `key_conflict`.
   */
  call(server: string, tool: string, args: ToolArguments = {}, options = noCallOptions): Promise<ToolResult> {
    const { operations } = this.#parts;
    if (options.idempotencyKey === undefined) return operations.call(server, tool, args, options);
    return callOnce(this.#keyedCalls, operations, () => this.mayRunTwice(server, tool), server, tool, args, options);
  }

  /** Sends any other request, such as `prompts/get`. A JSON-RPC error is a result; without an answer a HostError is thrown. */
  request(server: string, method: string, params?: JsonText, options?: HostRequestOptions): Promise<EraAnswer> {
    return this.#parts.operations.request(server, method, params, options);
  }

  /** Stops the instances of a client that has disconnected (`isolation: "per-client"`). */
  endInstance(instance: string): void {
    this.#parts.instances.end(instance);
  }

  tools(server: string, options?: ListOptions): Promise<HostTool[]> {
    return this.#parts.listOperations.tools(server, options);
  }

  /** Reads one list of one server; cached as long as the server allows. */
  list(server: string, method: ListMethod, options?: ListOptions): Promise<HostItem[]> {
    return this.#parts.listOperations.list(server, method, options);
  }

  /** Reads one resource; cached as long as the server allows. */
  read(server: string, uri: string, options?: ListOptions): Promise<ResourceResult> {
    return this.#parts.listOperations.read(server, uri, options);
  }

  /** Lists the tools of all servers, each with its own time limit. A failed server is a row with its error. */
  discover(options?: DiscoverOptions): Promise<Discovered[]> {
    return this.#parts.discovery.discover(options);
  }

  /**
   * Reads the card of the named server, or of a URL or path that this process can reach. For operators only: nothing is checked
   * or filtered, so never pass text of a caller or a model.
   */
  card(nameOrSource: string): Promise<ServerCard> {
    return this.#parts.discovery.card(nameOrSource);
  }

  status(): StatusRow[] {
    return this.#closing === undefined ? statusRows(this.#parts.statusSources) : [];
  }

  /** Explains why the principal sees the server or tool, and how a call would end now. Charges and starts nothing. */
  explain(server: string, tool?: string, principal: Principal = embedder): Explanation {
    return explain(gatherFacts(this.#parts, server, tool, principal));
  }

  /**
   * End of the stderr of the newest process that wrote any, redacted, without an incomplete line of a running process. Undefined:
   * the server never had a process.
   */
  stderr(server: string, maxBytes?: number): string | undefined {
    return this.#parts.stderrTails.of(this.#parts.servers.get(server).definition.name, maxBytes);
  }

  /** Like `stderr`, by lines, with the times at which they arrived. */
  stderrLines(server: string, maxBytes?: number): readonly StderrLine[] {
    return this.#parts.stderrTails.linesOf(this.#parts.servers.get(server).definition.name, maxBytes);
  }

  /** Keeps a server running until the lease is released. */
  lease(server: string): Promise<Lease> {
    return this.#parts.servers.lease(server);
  }

  async start(server: string): Promise<void> {
    const { supervisor } = this.#parts.servers.get(server);
    this.#parts.marks.set(server, 'stopped', false);
    supervisor.start();
    this.#parts.instances.resume(server);
    await this.#parts.servers.ready(server);
  }

  /** Stops a server; neither calls nor timers start it again. With a `stateDir` it stays stopped in the next host. */
  async stop(server: string): Promise<void> {
    const managed = this.#parts.servers.get(server);
    // No mark for an attached server: the next program may attach another one under this name.
    if (!isAttached(managed.definition.spec)) this.#parts.marks.set(server, 'stopped', true);
    void this.#parts.forget(server);
    const stopped = managed.stop();
    this.#parts.endWaits(managed);
    await Promise.all([stopped, this.#parts.instances.endOf(server)]);
  }

  /** Restarts with an empty ledger and a reset breaker; a lazy server starts with its next call. */
  async reload(server: string): Promise<void> {
    const managed = this.#parts.servers.get(server);
    managed.mustBeReloadable();
    this.#parts.marks.set(server, 'stopped', false);
    managed.forgetCircuit();
    this.#parts.throttle.forget(server);
    this.#parts.serverThrottle.forget(server);
    this.#parts.dropAnswers(server);
    await Promise.all([managed.supervisor.reload(), this.#parts.instances.reload(server)]);
  }

  /** Pin status of a tool and hash of its listed version; undefined for an unknown tool. */
  pin(server: string, tool: string): ListedPin | undefined {
    return this.#parts.approvals.listed(server, tool);
  }

  /** Approves the listed version of a tool if it has this hash. */
  approve(server: string, tool: string, hash: string): void {
    this.#parts.approvals.approve(server, tool, hash);
  }

  /** The tools that wait for approval, with their changed fields; and the undo of approvals. */
  get approvals(): Pick<Approvals, 'waiting' | 'undo'> {
    return this.#parts.approvals;
  }

  cacheStats(): CacheStats {
    return this.#parts.cache.stats();
  }

  /** Replaces the guards of the embedder; without arguments, removes them. Guards and configured roles combine by AND. */
  setAllowlist(...guards: readonly Guard[]): void {
    this.#parts.rules.setOwn(guards);
    publishRules(this.#parts);
  }

  // --- for gateways

  names(): readonly string[] {
    return this.#parts.servers.names();
  }

  /** Known facts about a server, without starting it; undefined for an unknown server. */
  known(server: string): KnownServer | undefined {
    return this.#closing === undefined ? this.#parts.listings.known(server) : undefined;
  }

  /** Calls the listener after `known(server)` or its visibility has changed. Returns the function that removes it. */
  onKnownChanged(listener: (server: string) => void): () => void {
    return this.#parts.listings.onChanged(listener);
  }

  /** True if the principal may see the server (`tool` undefined) or call the tool. Charges nothing. */
  isAllowed(principal: Principal, server: string, tool: string | undefined): boolean {
    const action = tool === undefined ? 'list' : 'call';
    return denial(() => this.#parts.rules.guards, { principal, server, tool, action }) === undefined;
  }

  /** Principals with the same key have the same rights until `rulesRevision` changes, so they can share lists. */
  accessKey(principal: Principal): string {
    return this.#parts.rules.accessKey(principal);
  }

  /** True if a call with an unknown outcome may be repeated: its annotations say so and are trusted. */
  mayRunTwice(server: string, tool: string): boolean {
    const managed = this.#parts.servers.find(server);
    return managed !== undefined && mayRunTwice(managed.traitsOf(tool));
  }

  /** True if roles or guards may show callers different things. */
  get hasRoles(): boolean {
    return this.#parts.rules.hasRoles;
  }

  /** Increases when guards or roles may have changed. */
  get rulesRevision(): number {
    return this.#parts.rules.revision;
  }

  /** True if callers with this role are refused because the configuration does not list it. */
  isUnlistedRole(role: string): boolean {
    return this.#parts.rules.isUnlisted(role);
  }

  /** Resolves when these servers (default: all) were listed once, or 1 s after the first request. Undefined: do not wait. */
  startupListing(servers?: readonly string[]): Promise<void> | undefined {
    return this.#parts.startupListing.wait(servers);
  }

  /** Starts servers with unknown tools once in the background to list them. No effect with `learnAtBoot: false`. */
  learnTools(): void {
    if (this.#closing === undefined) this.#parts.startupListing.turnOn();
  }

  /** Resolves when every pending first listing has settled, without a time limit. Undefined: no listing is pending. */
  whenAllListed(): Promise<void> | undefined {
    return this.#parts.startupListing.whenAllListed();
  }

  /** Like `whenAllListed`, without servers that were too slow in an earlier host. */
  whenReady(): Promise<void> | undefined {
    return this.#parts.startupListing.whenReady();
  }

  /**
   * Keeps the server running and calls `updated` for each update of the resource, across restarts, until the returned function
   * is called. `instance`: the client, as in calls.
   */
  subscribe(
    server: string,
    uri: string,
    principal: Principal,
    updated: (params: Buffer) => void,
    instance?: string,
  ): Promise<() => void> {
    return this.#parts.subscriptions.subscribe(server, uri, principal, updated, instance);
  }

  get groups(): ReadonlyMap<string, readonly string[]> {
    return this.#parts.rules.groups;
  }

  withBudget<T>(plan: BudgetPlan, run: () => T): T {
    return this.#parts.budgets.withBudget(plan, run);
  }

  /** `any` subscribes to all events. Returns the function that removes the listener. */
  on<Kind extends HostEventKind | 'any'>(kind: Kind, listener: Listener<HostEventOf<Kind>>): () => void {
    return this.#parts.events.on(kind, listener);
  }

  /** Counts calls without an event for each. Undefined removes the meter. */
  meterCalls(meter: CallMeter | undefined): void {
    this.#parts.audit.meter = meter;
  }

  /** Source of the resource templates that a gateway does not route, for `status`. Undefined removes the source. */
  showUnrouted(unroutedOf: UnroutedOf | undefined): void {
    this.#parts.routing.unroutedOf = unroutedOf;
  }

  /**
   * Sets a log for calls with an `idempotencyKey`. Several hosts use the `shared` log: it gets the keys that the `own` log
   * does not know. After the shared log is closed, calls with these keys are refused, because no other log knows them.
   */
  useKeyedCalls(calls: KeyedCalls, scope: 'own' | 'shared'): void {
    this.#keyedCalls.use(calls, scope);
  }

  /** Stops every server. Resolves when all processes and connections of this host have ended. */
  close(): Promise<void> {
    this.#closing ??= closeHostParts(this.#parts, () => this.#keyedCalls.close());
    return this.#closing;
  }

  #mustBeOpen(): void {
    if (this.#closing === undefined) return;
    throw new HostError('server_stopped', 'the host is closed', { reason: 'closed', execution: 'not_executed' });
  }

  async #add(name: string, define: () => ServerDefinition, replace = false): Promise<void> {
    const request: GuardRequest = { principal: embedder, server: name, tool: undefined, action: 'spawn' };
    const refused = denial(() => this.#parts.rules.guards, request);
    if (refused) {
      this.#parts.audit.denied(request);
      throw refused;
    }
    await this.#parts.servers.spawn(define(), replace);
    // Also lists the tools of a lazy server.
    this.#parts.startupListing.listUnlisted();
  }
}

export async function createHost(config: HostConfig, options: HostOptions = {}): Promise<Host> {
  if (options.stateDir !== undefined) await loadLibsql();
  const host = new Host(options);
  try {
    await host.open(config);
    return host;
  } catch (error) {
    await host.close();
    throw error;
  }
}
