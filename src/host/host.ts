/**
 * The methods of a host. Each calls the parts in order; the parts and the folders above make the decisions.
 * Not here: creating the parts (host-parts.ts), the types of options and results (host-interface.ts).
 */
import type { KnownServer } from '../catalog/catalog-server.js';
import type { Discovered, DiscoverOptions } from '../catalog/discovery.js';
import type { HostItem, HostTool } from '../catalog/pinned-tools.js';
import { approvalEvent } from '../catalog/schema-events.js';
import { loadLibsql } from '../catalog/store/state-file.js';
import { parseHostConfig } from '../config/host-config.js';
import { copyEntry } from '../config/plain-data.js';
import type { Listener } from '../kernel/emitter.js';
import { HostError } from '../kernel/errors.js';
import { KeyedMutex } from '../kernel/keyed-mutex.js';
import { denial, type Guard, type GuardRequest } from '../policy/allowlist.js';
import type { CacheStats } from '../policy/cache.js';
import { type EraAnswer, embedder, type Principal } from '../policy/operation.js';
import type { PinStatus } from '../policy/pin-records.js';
import type { BudgetPlan } from '../policy/rate-limit.js';
import { mayRunTwice } from '../policy/retry.js';
import type { ListMethod } from '../session/lists.js';
import type { ServerCard } from '../session/server-card.js';
import type { ToolArguments } from '../session/session.js';
import type { Lease } from '../supervisor/registry.js';
import type { Attachable, AttachFactory } from '../transports/attached/attachable.js';
import type { JsonText } from '../wire/frame.js';
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
import { createHostParts, type HostParts, type MakeConnector } from './host-parts.js';
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
  /** One reconfiguration at a time. */
  readonly #reconfigurations = new KeyedMutex();
  #closing: Promise<void> | undefined;

  /** `makeConnector`: for simulations only. */
  constructor(options: HostOptions = {}, makeConnector?: MakeConnector) {
    this.#parts = createHostParts(options, makeConnector);
  }

  /** Ends processes that an earlier host left, then starts the servers. An invalid entry is reported and becomes a disabled server. */
  async open(config: HostConfig): Promise<void> {
    const settings = parseHostConfig(config, this.#parts.onConfigProblem);
    this.#parts.audit.tracing = await openTracing(settings.telemetry, this.#parts.onProblem);
    this.#parts.rules.configure(settings);
    await this.#parts.connector.reapLeftovers();
    this.#parts.configured.declare(settings);
    this.#parts.startupListing.begin();
  }

  /**
   * Applies another configuration: only changed servers are restarted; roles, budgets and groups hold from the next call on. An invalid
   * configuration throws and changes nothing; an invalid entry is reported and leaves its server as it was. Resolves when removed
   * servers are gone. `joint`: what must change in the same tick, such as the keys of a gateway.
   */
  async reconfigure(config: HostConfig, joint?: JointChange): Promise<Reconfigured> {
    const { applied } = await this.#reconfigurations.take('', async () => {
      this.#mustBeOpen();
      const settings = parseHostConfig(config, this.#parts.onConfigProblem);
      const tracing = await openTracing(settings.telemetry, this.#parts.onProblem);
      this.#mustBeOpen();
      const applied = changeConfiguration(this.#parts, settings, tracing, joint);
      this.#parts.startupListing.listUnlisted();
      // In an object, so that the mutex does not wait until removed servers have stopped.
      return { applied };
    });
    return applied;
  }

  /**
   * Adds a server and, unless it is lazy, waits until it is ready. If it fails, it is removed and the server that it replaced is
   * restored. The same definition again starts a stopped server; another one needs `replace`.
   */
  async spawn(entry: SpawnEntry, options: SpawnOptions = {}): Promise<string> {
    const given = copyEntry(entry, 'the server') as SpawnEntry;
    const name = spawnName(given);
    this.#mustBeAllowed({ principal: embedder, server: name, tool: undefined, action: 'spawn' });
    await this.#parts.servers.spawn(spawnDefinition(given, options), options.replace ?? false);
    // Lists a lazy server, too.
    this.#parts.startupListing.listUnlisted();
    return name;
  }

  /**
   * Adds a connection of the application as a server: an unstarted transport or an unconnected server of an MCP SDK, or a function that
   * creates one for every start. The host does the handshake and closes it. Resolves and fails like `spawn`.
   */
  async attach(name: string, source: Attachable | AttachFactory, options: AttachOptions = {}): Promise<void> {
    const definition = attachDefinition(name, source, options);
    this.#mustBeAllowed({ principal: embedder, server: name, tool: undefined, action: 'spawn' });
    await this.#parts.servers.spawn(definition, options.replace ?? false);
    this.#parts.startupListing.listUnlisted();
  }

  /** Closes and removes an attached server; resolves when it is closed, at the latest after 5 s. */
  async detach(name: string): Promise<void> {
    this.#parts.servers.mustBeAttached(name);
    await Promise.all([this.#parts.servers.detach(name), this.#parts.instances.endOf(name)]);
  }

  call(server: string, tool: string, args: ToolArguments = {}, options = noCallOptions): Promise<ToolResult> {
    return this.#parts.operations.call(server, tool, args, options);
  }

  /** Any other request, such as `prompts/get`. A JSON-RPC error is a result too; a HostError is thrown when there is no answer. */
  request(server: string, method: string, params?: JsonText, options?: HostRequestOptions): Promise<EraAnswer> {
    return this.#parts.operations.request(server, method, params, options);
  }

  /** Stops the instances of a client that is gone (`isolation: "per-client"`). */
  endInstance(instance: string): void {
    this.#parts.instances.end(instance);
  }

  /** The tools of one server that the principal may call. */
  tools(server: string, options?: ListOptions): Promise<HostTool[]> {
    return this.#parts.catalogue.tools(server, options);
  }

  /** One list of one server; cached as long as the server allows. */
  list(server: string, method: ListMethod, options?: ListOptions): Promise<HostItem[]> {
    return this.#parts.catalogue.list(server, method, options);
  }

  /** One resource; cached as long as the server allows. */
  read(server: string, uri: string, options?: ListOptions): Promise<ResourceResult> {
    return this.#parts.catalogue.read(server, uri, options);
  }

  /** The tools of all servers, each with its own time limit; a failed server is a row with its error. */
  discover(options?: DiscoverOptions): Promise<Discovered[]> {
    return this.#parts.discovery.discover(options);
  }

  /**
   * The card of a server by name, or of a URL or path, which reaches whatever this process can reach. For operators: nothing is checked
   * or filtered, so never pass it text of a caller or a model.
   */
  card(nameOrSource: string): Promise<ServerCard> {
    return this.#parts.discovery.card(nameOrSource);
  }

  status(): StatusRow[] {
    if (this.#closing !== undefined) return [];
    return statusRows(this.#parts.statusSources);
  }

  /** Why the principal sees the server or the tool, and what a call would meet now. Charges and starts nothing. */
  explain(server: string, tool?: string, principal: Principal = embedder): Explanation {
    return explain(gatherFacts(this.#parts, server, tool, principal));
  }

  /** The end of a server's stderr, redacted; of its last process until a new one has written. Undefined: it never had a process. */
  stderr(server: string, maxBytes?: number): string | undefined {
    return this.#parts.stderrTails.of(this.#parts.servers.get(server).definition.name, maxBytes);
  }

  /** Holds a server open until the lease is released. */
  lease(server: string): Promise<Lease> {
    return this.#parts.servers.lease(server);
  }

  async start(server: string): Promise<void> {
    this.#parts.servers.get(server).supervisor.start();
    await this.#parts.servers.ready(server);
  }

  /** Neither calls nor timers start it again. */
  async stop(server: string): Promise<void> {
    const { supervisor } = this.#parts.servers.get(server);
    this.#parts.forget(server);
    await Promise.all([supervisor.stop(), this.#parts.instances.endOf(server)]);
  }

  /** Restarts with an empty ledger and breaker; a lazy server starts with its next call. */
  async reload(server: string): Promise<void> {
    const managed = this.#parts.servers.get(server);
    managed.mustBeReloadable();
    managed.forgetCircuit();
    this.#parts.throttle.forget(server);
    this.#parts.serverThrottle.forget(server);
    this.#parts.forget(server);
    await Promise.all([managed.supervisor.reload(), this.#parts.instances.endOf(server)]);
  }

  /** Pin status of a tool, and the hash of the listed version; undefined for an unknown tool. */
  pin(server: string, tool: string): { readonly status: PinStatus; readonly hash: string | undefined } | undefined {
    const { pins } = this.#parts;
    const record = pins.recordOf(server, tool);
    return record && { status: pins.statusOf(server, tool), hash: (record.pending ?? record.approved)?.hash };
  }

  /** Approves this version of the tool. */
  approve(server: string, tool: string, hash: string): void {
    const { pins, clock, events, catalogue } = this.#parts;
    const before = pins.recordOf(server, tool);
    pins.approve(server, tool, hash, clock.date());
    const event = approvalEvent(tool, before, pins.recordOf(server, tool));
    if (event) events.emit(server, event);
    catalogue.judgeAnew(server);
  }

  cacheStats(): CacheStats {
    return this.#parts.cache.stats();
  }

  /** Guards combine by AND, also with the roles of the configuration. Without arguments earlier guards are removed. */
  setAllowlist(...guards: readonly Guard[]): void {
    this.#parts.rules.setOwn(guards);
    publishRules(this.#parts);
  }

  // --- for gateways

  /** Sorted. */
  names(): readonly string[] {
    return this.#parts.servers.names();
  }

  /** What is known of a server without starting it; undefined when there is no such server. */
  known(server: string): KnownServer | undefined {
    return this.#closing === undefined ? this.#parts.listings.known(server) : undefined;
  }

  /** Called after `known(server)`, or its visibility, has changed. Returns the function that removes the listener. */
  onKnownChanged(listener: (server: string) => void): () => void {
    return this.#parts.listings.onChanged(listener);
  }

  /** The principal may see the server (`tool` undefined), or call this tool. Charges nothing. */
  isAllowed(principal: Principal, server: string, tool: string | undefined): boolean {
    const action = tool === undefined ? 'list' : 'call';
    return denial(() => this.#parts.rules.guards, { principal, server, tool, action }) === undefined;
  }

  /** Principals with the same key are allowed the same, as long as `rulesRevision` stays: lists are shared by it. */
  accessKey(principal: Principal): string {
    return this.#parts.rules.accessKey(principal);
  }

  /** A call with an unknown outcome may be repeated: the server says so, and its annotations are trusted. */
  mayRunTwice(server: string, tool: string): boolean {
    const managed = this.#parts.servers.find(server);
    return managed !== undefined && mayRunTwice(managed.traitsOf(tool));
  }

  /** Callers may see different things, because there are roles or guards. */
  get hasRoles(): boolean {
    return this.#parts.rules.hasRoles;
  }

  /** Increases when guards or roles may have changed. */
  get rulesRevision(): number {
    return this.#parts.rules.revision;
  }

  /** The configuration does not list this role: its callers are refused. */
  isUnlistedRole(role: string): boolean {
    return this.#parts.rules.isUnlisted(role);
  }

  /** Resolves when these servers (default: all) were listed once, at the latest 1 s after the first such request. Undefined: no wait. */
  startupListing(servers?: readonly string[]): Promise<void> | undefined {
    return this.#parts.startupListing.wait(servers);
  }

  /** Starts servers whose tools are unknown once in the background, to list them. No effect with `learnAtBoot: false`. */
  learnTools(): void {
    if (this.#closing === undefined) this.#parts.startupListing.turnOn();
  }

  /** Resolves when all servers were listed once, without a time limit. Undefined: they were. */
  whenAllListed(): Promise<void> | undefined {
    return this.#parts.startupListing.whenAllListed();
  }

  /**
   * Holds the server open and calls `updated` for each update of the resource, over restarts, until the returned function is called.
   * `instance`: the client, as in calls.
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

  /** Server names by group. */
  get groups(): ReadonlyMap<string, readonly string[]> {
    return this.#parts.rules.groups;
  }

  withBudget<T>(plan: BudgetPlan, run: () => T): T {
    return this.#parts.budgets.withBudget(plan, run);
  }

  /** `any` is for all events. Returns the function that removes the listener. */
  on<Kind extends HostEventKind | 'any'>(kind: Kind, listener: Listener<HostEventOf<Kind>>): () => void {
    return this.#parts.events.on(kind, listener);
  }

  /** Counts calls without an event for each. There is one meter; undefined removes it. */
  meterCalls(meter: CallMeter | undefined): void {
    this.#parts.audit.meter = meter;
  }

  /** Lets `status` show the resource templates that a gateway does not route. There is one source; undefined removes it. */
  showUnrouted(unroutedOf: UnroutedOf | undefined): void {
    this.#parts.routing.unroutedOf = unroutedOf;
  }

  /** Stops every server; resolves when nothing of this host runs. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    try {
      // A failure of one server must not keep the others running.
      await Promise.all([this.#parts.servers.close().catch(this.#parts.onProblem), this.#parts.instances.close()]);
      this.#parts.histories?.flush();
      this.#parts.flushState();
      this.#parts.servers.registry.clear();
    } finally {
      await this.#parts.connector.close();
      this.#parts.alive.close();
    }
  }

  #mustBeOpen(): void {
    if (this.#closing !== undefined) throw closed();
  }

  #mustBeAllowed(request: GuardRequest): void {
    const refused = denial(() => this.#parts.rules.guards, request);
    if (!refused) return;
    this.#parts.audit.denied(request);
    throw refused;
  }
}

const closed = (): HostError =>
  new HostError('server_stopped', 'the host is closed', { reason: 'closed', execution: 'not_executed' });

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
