/**
 * What a host does, method by method. Every decision is made in the folders above and by the parts beside it; here is only who is
 * asked in which order.
 * Not here: what it is made of (host-parts.ts), the types of what goes in and out (host-interface.ts).
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
import type { BudgetPlan } from '../policy/call-budget.js';
import { type EraAnswer, embedder, type Principal } from '../policy/operation.js';
import type { PinStatus } from '../policy/pin-store.js';
import { mayRunTwice } from '../policy/replay.js';
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
  /** Readings of the configuration, one after the other. */
  readonly #readings = new KeyedMutex();
  #closing: Promise<void> | undefined;

  /** `makeConnector`: for simulations only. */
  constructor(options: HostOptions = {}, makeConnector?: MakeConnector) {
    this.#parts = createHostParts(options, makeConnector);
  }

  /** Takes down what an earlier host left, then starts what is to run. A bad entry is reported and is a disabled server. */
  async open(config: HostConfig): Promise<void> {
    const settings = parseHostConfig(config, this.#parts.onConfigProblem);
    this.#parts.audit.tracing = await openTracing(settings.telemetry, this.#parts.onProblem);
    this.#parts.rules.configure(settings);
    await this.#parts.connector.reapLeftovers();
    this.#parts.configured.declare(settings);
    this.#parts.startupListing.begin();
  }

  /**
   * Takes another configuration: only servers whose entry changed are started anew, and roles, budgets and groups hold from
   * the next call on. One that cannot be read as a whole is thrown, and changes nothing; an entry that cannot be read is told
   * and leaves its server as it was. Resolves when what was taken out is gone.
   * `joint`: what must change in the same tick, such as the keys by which a gateway knows who has which role.
   */
  async reconfigure(config: HostConfig, joint?: JointChange): Promise<Reconfigured> {
    const { applied } = await this.#readings.take('', async () => {
      this.#mustBeOpen();
      const settings = parseHostConfig(config, this.#parts.onConfigProblem);
      const tracing = await openTracing(settings.telemetry, this.#parts.onProblem);
      this.#mustBeOpen();
      const applied = changeConfiguration(this.#parts, settings, tracing, joint);
      this.#parts.startupListing.learnUnseen();
      // In an object, so that the next reading does not wait until removed servers have stopped.
      return { applied };
    });
    return applied;
  }

  /**
   * Adds a server and, unless it is lazy, waits until it is ready. When it does not become ready nothing of it stays, and one
   * that it was to replace is back. The same definition again is no error, and starts a server that was stopped; another one
   * needs `replace`.
   */
  async spawn(entry: SpawnEntry, options: SpawnOptions = {}): Promise<string> {
    const given = copyEntry(entry, 'the server') as SpawnEntry;
    const name = spawnName(given);
    this.#mustBeAllowed({ principal: embedder, server: name, tool: undefined, action: 'spawn' });
    await this.#parts.servers.spawn(spawnDefinition(given, options), options.replace ?? false);
    // One that waits for its first call is listed as well.
    this.#parts.startupListing.learnUnseen();
    return name;
  }

  /**
   * Puts a connection of the application under a name: an unstarted transport or an unconnected server of an MCP SDK, or a
   * function that makes one, which is called for every start. The host owns it from here on: it does the handshake and closes it.
   * Resolves and fails as `spawn` does.
   */
  async attach(name: string, source: Attachable | AttachFactory, options: AttachOptions = {}): Promise<void> {
    const definition = attachDefinition(name, source, options);
    this.#mustBeAllowed({ principal: embedder, server: name, tool: undefined, action: 'spawn' });
    await this.#parts.servers.spawn(definition, options.replace ?? false);
    this.#parts.startupListing.learnUnseen();
  }

  /** Closes an attached server and forgets its name; resolves when it is closed, or abandoned after 5 s. */
  async detach(name: string): Promise<void> {
    this.#parts.servers.mustBeAttached(name);
    await Promise.all([this.#parts.servers.detach(name), this.#parts.instances.endOf(name)]);
  }

  call(server: string, tool: string, args: ToolArguments = {}, options = noCallOptions): Promise<ToolResult> {
    return this.#parts.operations.call(server, tool, args, options);
  }

  /**
   * Any other request, such as `prompts/get`. What the server answers is the answer, an error too; a HostError is thrown when
   * none came.
   */
  request(server: string, method: string, params?: JsonText, options?: HostRequestOptions): Promise<EraAnswer> {
    return this.#parts.operations.request(server, method, params, options);
  }

  /** A client is gone: the instances that it had of servers with `isolation: "per-client"` are stopped. */
  endInstance(instance: string): void {
    this.#parts.instances.end(instance);
  }

  /** The tools of one server, as far as the principal may call them. */
  tools(server: string, options?: ListOptions): Promise<HostTool[]> {
    return this.#parts.catalogue.tools(server, options);
  }

  /** One list of one server; kept for as long as the server says. */
  list(server: string, method: ListMethod, options?: ListOptions): Promise<HostItem[]> {
    return this.#parts.catalogue.list(server, method, options);
  }

  /** One resource; kept for as long as the server says. */
  read(server: string, uri: string, options?: ListOptions): Promise<ResourceResult> {
    return this.#parts.catalogue.read(server, uri, options);
  }

  /** All servers, some at a time, each in its own time; one that fails is told as an error and disturbs nobody. */
  discover(options?: DiscoverOptions): Promise<Discovered[]> {
    return this.#parts.discovery.discover(options);
  }

  /**
   * The card of a server, by its name; or one at a URL or path, which reaches whatever this process can reach. For operators:
   * no guard is asked and nothing is filtered, so never hand it a text of a caller or of a model.
   */
  card(nameOrSource: string): Promise<ServerCard> {
    return this.#parts.discovery.card(nameOrSource);
  }

  status(): StatusRow[] {
    if (this.#closing !== undefined) return [];
    return statusRows(this.#parts.statusSources);
  }

  /**
   * Why the principal sees the server, or one tool of it, and what a call would meet now. Nothing is charged, started or told.
   * Without a principal it is about whoever embeds the host.
   */
  explain(server: string, tool?: string, principal: Principal = embedder): Explanation {
    return explain(gatherFacts(this.#parts, server, tool, principal));
  }

  /**
   * The end of what the process of a server wrote to stderr, redacted and neutralised; that of the last one until the next has
   * written something. Undefined when it never had a process.
   */
  stderr(server: string, maxBytes?: number): string | undefined {
    return this.#parts.stderrTails.of(this.#parts.servers.get(server).definition.name, maxBytes);
  }

  /** Holds a server open until it is given back. */
  lease(server: string): Promise<Lease> {
    return this.#parts.servers.lease(server);
  }

  async start(server: string): Promise<void> {
    this.#parts.servers.get(server).supervisor.start();
    await this.#parts.servers.ready(server);
  }

  /** Sticky: neither calls nor timers bring it back. */
  async stop(server: string): Promise<void> {
    const { supervisor } = this.#parts.servers.get(server);
    this.#parts.forget(server);
    await Promise.all([supervisor.stop(), this.#parts.instances.endOf(server)]);
  }

  /** Forgives everything and starts afresh; a lazy server when it is next wanted. */
  async reload(server: string): Promise<void> {
    const managed = this.#parts.servers.get(server);
    managed.mustBeReloadable();
    managed.forgetCircuit();
    this.#parts.throttle.forget(server);
    this.#parts.serverThrottle.forget(server);
    this.#parts.forget(server);
    await Promise.all([managed.supervisor.reload(), this.#parts.instances.endOf(server)]);
  }

  /** What the definition of a tool is held against, and what is listed now; undefined for a tool that was never seen. */
  pin(server: string, tool: string): { readonly status: PinStatus; readonly hash: string | undefined } | undefined {
    const { pins } = this.#parts;
    const record = pins.recordOf(server, tool);
    return record && { status: pins.statusOf(server, tool), hash: (record.pending ?? record.approved)?.hash };
  }

  /** From now on this very version of the tool is the one to hold it against. */
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

  /** Several guards combine by AND, also with the roles of the configuration; none takes back the ones given before. */
  setAllowlist(...guards: readonly Guard[]): void {
    this.#parts.rules.setOwn(guards);
    publishRules(this.#parts);
  }

  // --- what a gateway shows

  /** In their order. */
  names(): readonly string[] {
    return this.#parts.servers.names();
  }

  /** What can be said of a server at once, and without starting it; undefined when there is none of that name. */
  known(server: string): KnownServer | undefined {
    return this.#closing === undefined ? this.#parts.listings.known(server) : undefined;
  }

  /** Told after what is known of a server, its state, or what may be seen of it changed. Returns what ends it. */
  onKnownChanged(listener: (server: string) => void): () => void {
    return this.#parts.listings.onChanged(listener);
  }

  /** Whether the principal may see the server at all (`tool` undefined) or call this tool. Nothing is charged or told. */
  isAllowed(principal: Principal, server: string, tool: string | undefined): boolean {
    const action = tool === undefined ? 'list' : 'call';
    return denial(() => this.#parts.rules.guards, { principal, server, tool, action }) === undefined;
  }

  /** Principals with the same key are allowed the same, as long as `rulesRevision` stays: lists are shared by it. */
  accessKey(principal: Principal): string {
    return this.#parts.rules.accessKey(principal);
  }

  /** Whether a call of this tool may be repeated when nobody knows how it ended: its server says so, and is trusted to. */
  mayRunTwice(server: string, tool: string): boolean {
    const managed = this.#parts.servers.find(server);
    return managed !== undefined && mayRunTwice(managed.traitsOf(tool));
  }

  /** Whether roles or guards may show callers different things. Without any, all of them see the same. */
  get hasRoles(): boolean {
    return this.#parts.rules.hasRoles;
  }

  /** Counts up when guards or roles may have changed. */
  get rulesRevision(): number {
    return this.#parts.rules.revision;
  }

  /** Callers in this role are refused everything, because the configuration does not list it. */
  isUnlistedRole(role: string): boolean {
    return this.#parts.rules.isUnlisted(role);
  }

  /**
   * For listings of servers: resolves when these servers, or all, were seen once, at the latest 1 s after the first such request.
   * Undefined: no need to wait.
   */
  startupListing(servers?: readonly string[]): Promise<void> | undefined {
    return this.#parts.startupListing.wait(servers);
  }

  /**
   * For gateways and brokers, which list tools without starting anything: from now on a server whose tools were never seen is
   * started once in the background to learn them. `learnAtBoot: false` keeps that off.
   */
  learnTools(): void {
    if (this.#closing === undefined) this.#parts.startupListing.turnOn();
  }

  /** For who only watches: resolves when every server was seen once, however long that takes. Undefined: they were. */
  whenAllListed(): Promise<void> | undefined {
    return this.#parts.startupListing.whenAllListed();
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
    return this.#parts.subscriptions.subscribe(server, uri, principal, updated, instance);
  }

  /** Servers by group, as configured. */
  get groups(): ReadonlyMap<string, readonly string[]> {
    return this.#parts.rules.groups;
  }

  withBudget<T>(plan: BudgetPlan, run: () => T): T {
    return this.#parts.budgets.withBudget(plan, run);
  }

  /** `any` hears every event. Returns the function that takes the listener off again. */
  on<Kind extends HostEventKind | 'any'>(kind: Kind, listener: Listener<HostEventOf<Kind>>): () => void {
    return this.#parts.events.on(kind, listener);
  }

  /** Counts calls without a record of each: told server, outcome and duration. One meter at a time; undefined takes it off. */
  meterCalls(meter: CallMeter | undefined): void {
    this.#parts.audit.meter = meter;
  }

  /** Shown by `status`: which resource templates a gateway does not route. One gateway at a time; undefined takes it off. */
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
      // Whatever is wrong with one server, the others and all that they started go too.
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
