/**
 * Creates the parts of a host and connects them.
 * Not here: the methods that use them (host.ts).
 *
 * Invariant: parts that need each other are connected by functions, which run only after all parts exist.
 */
import { Discovery } from '../catalog/discovery.js';
import { Listings } from '../catalog/listings.js';
import { schemaEvents } from '../catalog/schema-events.js';
import { pinsByOrigin } from '../catalog/server-origin.js';
import { ServerRuns } from '../catalog/server-runs.js';
import { StartupListing } from '../catalog/startup-listing.js';
import { memoryApprovals } from '../catalog/store/approvals-table.js';
import { FailureHistories } from '../catalog/store/failure-histories.js';
import { serverMarks } from '../catalog/store/server-marks.js';
import { StateFile } from '../catalog/store/state-file.js';
import { Subscriptions } from '../catalog/subscriptions.js';
import { KeepAlive, systemClock } from '../kernel/clock.js';
import { warnProcess, withoutThrowing } from '../kernel/problems.js';
import { systemRandom } from '../kernel/random.js';
import { callCachePlan, listCachePlan, ResponseCache } from '../policy/cache.js';
import { memoryPinStore } from '../policy/pin-records.js';
import { type PinChange, Pins, trustsEverything } from '../policy/pins.js';
import { CallBudgets } from '../policy/rate-limit.js';
import { ReconnectBackoff } from '../policy/retry.js';
import { ServerThrottle, ToolThrottle } from '../policy/throttles.js';
import { Connector, type ConnectorOptions } from '../session/connector.js';
import { ServerCards } from '../session/server-card.js';
import type { StderrLine } from '../transports/stdio/stderr-ring.js';
import { StdioChannel } from '../transports/stdio/stdio-channel.js';
import type { Channel } from '../wire/channel.js';
import { NOTIFICATION } from '../wire/methods.js';
import { Approvals } from './approvals.js';
import { Audit } from './audit.js';
import { ConfiguredServers } from './configured-servers.js';
import { HostEvents } from './host-events.js';
import type { HostOptions } from './host-interface.js';
import { HostRules } from './host-rules.js';
import { Instances, subscriptionTargets } from './instances.js';
import { ListOperations } from './list-operations.js';
import type { ManagedServer } from './managed-server.js';
import { type ListRequest, Operations } from './operations.js';
import { Servers } from './servers.js';
import type { UnroutedOf } from './status.js';
import { createSupervise } from './supervise.js';

/** Simulations pass a connector that opens neither processes nor sockets. */
export type MakeConnector = (options: ConnectorOptions) => Connector;

export type HostParts = ReturnType<typeof createHostParts>;

export function createHostParts(options: HostOptions, makeConnector: MakeConnector = (own) => new Connector(own)) {
  const { clock = systemClock, random = systemRandom, stateDir, ambient } = options;
  const onProblem = withoutThrowing(options.onProblem ?? (() => {}));
  // Configuration errors are reported even without `onProblem`.
  const onConfigProblem = withoutThrowing(options.onProblem ?? warnProcess);
  const alive = new KeepAlive();
  const stderrTails = new StderrTails();
  const rules = new HostRules((server) => servers.find(server)?.definition.tools);
  const connector = makeConnector({
    client: options.client ?? { name: 'hostler', version: '0', capabilities: {} },
    clock,
    random,
    onProblem,
    onAuth: (server, status) => events.emit(server, { kind: 'auth', status }),
    ...(stateDir === undefined ? {} : { stateDir }),
    ...(options.hiddenPaths === undefined ? {} : { hiddenPaths: options.hiddenPaths }),
    ...(ambient === undefined ? {} : { ambient }),
    ...(options.redactor === undefined ? {} : { redactor: options.redactor }),
    secrets: options.secrets,
  });
  const { clean } = connector;
  const budgets = new CallBudgets(clock, () => rules.rateLimits);
  const cache = new ResponseCache(clock, callCachePlan);
  const lists = new ResponseCache(clock, listCachePlan);
  const throttle = new ToolThrottle(clock);
  const serverThrottle = new ServerThrottle(clock);
  const reconnects = new ReconnectBackoff(clock, random);
  const state = stateDir === undefined ? undefined : StateFile.open(stateDir, onProblem);
  const marks = state?.marks ?? serverMarks();
  const histories = state && new FailureHistories(state.histories, clock, onProblem);
  const pins = new Pins({
    store: pinsByOrigin(state?.pins ?? memoryPinStore(), (server) => serverOf(server).definition.spec),
    policyOf: (server) => serverOf(server).definition.pins,
    isTrusted: (server) => {
      const managed = servers.find(server);
      return managed !== undefined && trustsEverything(managed.definition.pins);
    },
    onStoreError: onProblem,
  });
  const events = new HostEvents(
    clock,
    (event) => {
      if (event.kind === 'state' && event.to === 'connecting') listOperations.drop(event.server);
      servers.observe(event);
      runs.observe(event);
    },
    onProblem,
  );
  const audit = new Audit(events, clock);
  const supervise = createSupervise({
    clock,
    random,
    connector,
    events: events.supervisors,
    onNotification: (name, method, params, instance) => {
      listOperations.onNotification(name, method, params);
      if (method === NOTIFICATION.resourceUpdated) subscriptions.updated(instance ?? name, params);
    },
    runs: () => runs,
    accountChanged: (name) => {
      cache.drop(name);
      listOperations.drop(name);
      const managed = servers.find(name);
      const run = managed && runs.of(managed);
      if (run) return run.accountChanged();
      if (managed) listings.markOutdated(managed);
      // Listed in a later microtask: a request that is about to be sent goes first.
      queueMicrotask(() => servers.isClosed || startupListing.listUnlisted());
    },
    onChannel: (name, channel) => stderrTails.opened(name, channel),
    onProblem,
    authProvider: options.authProvider,
    histories,
  });
  const instances: Instances = new Instances({
    clock,
    supervise,
    findServer: (name) => servers.find(name),
    onProblem,
  });
  const dropAnswers = (server: string): void => {
    cache.drop(server);
    listOperations.drop(server);
    listings.changed(server);
  };
  /** Drops all cached answers of the server, and ends its instances. Resolves when they have ended. */
  const forget = (server: string): Promise<void> => {
    dropAnswers(server);
    return instances.endOf(server);
  };
  /**
   * Ends the calls that wait for a connection to a stopped server. Call it right after `stop`: the calls end before the stop
   * resolves.
   */
  const endWaits = (managed: ManagedServer | undefined): void => {
    const refusal = managed?.supervisor.refusal();
    if (managed && refusal) reconnects.end(managed, refusal);
  };
  const servers = new Servers({
    clock,
    supervise,
    onCircuit: (name) => (from, to, failures) => events.emit(name, { kind: 'breaker', from, to, failures }),
    forget: (name, gone, isSame) => {
      const ended = forget(name);
      if (gone && !isSame) state?.release(name, gone.origin);
      pins.forget(name, isSame);
      throttle.forget(name);
      serverThrottle.forget(name);
      stderrTails.forget(name);
      return ended;
    },
    restore: (managed, before) => {
      listOperations.restore(managed, before);
      if (!before) subscriptions.added(managed.definition.name);
    },
    marks,
  });
  const onRepaired = (name: string, notes: readonly string[]) => events.emit(name, { kind: 'repaired', notes });
  const serverOf = (name: string) => servers.get(name);
  const findServer = (name: string) => servers.find(name);
  const listings = new Listings({ findServer, pins, store: state?.listings, onProblem, onRepaired });
  const subscriptions = new Subscriptions({
    chargeRead: (server, uri, principal) => listOperations.chargeRead(server, uri, principal),
    mayRead: (server, principal) => listOperations.mayRead(server, principal),
    targetOf: subscriptionTargets(servers, instances, clock, (target) => runs.of(target)),
    onProblem,
  });
  const uris = (server: string) => subscriptions.uris(server);
  const runs: ServerRuns = new ServerRuns({
    ...{ clock, throttle: serverThrottle, findServer, listings, uris, clean, onProblem },
    beginToolRead: (name) => listOperations.beginToolRead(name),
    forgetAnswers: (name) => listOperations.drop(name),
    onToolsFailed: (name, error) => {
      // Calls to the server are still possible.
      servers.find(name)?.toolsFailed(error);
      onProblem(error);
    },
  });
  const guards = () => rules.guards;
  const shared = {
    clock,
    names: () => servers.names(),
    serverOf,
    findServer,
    guards,
    pins,
    budgets,
    serverThrottle,
    lists,
    list: (request: ListRequest) => operations.list(request),
    known: listings,
    cards: new ServerCards({ clock, random, clean, env: ambient ?? process.env }),
    clean,
    onDenied: audit.denied,
    onToolsChanged: (name: string) => cache.drop(name),
    onPins: (name: string, changes: readonly PinChange[]) => {
      for (const event of schemaEvents(changes)) events.emit(name, event);
    },
    onProblem,
  };
  const listOperations: ListOperations = new ListOperations(shared);
  const discovery = new Discovery({
    ...shared,
    listOperations,
    wasListed: (managed) => listings.wasListed(managed),
    listsRead: async (managed) => runs.of(managed)?.listsRead,
  });
  const log = state?.approvals ?? memoryApprovals();
  const approvals = new Approvals({ clock, pins, log, servers, events, listOperations });
  const startupListing = new StartupListing(clock, discovery, options.learnAtBoot, {
    was: (name) => marks.has(name, 'slow'),
    exceeded: (name) => marks.set(name, 'slow', true),
    settled: (name) => {
      const managed = servers.find(name);
      if (managed && listings.wasListed(managed)) marks.set(name, 'slow', false);
    },
  });
  const { targetOf } = instances;
  /** A gateway sets `unroutedOf`. */
  const routing: { unroutedOf: UnroutedOf | undefined } = { unroutedOf: undefined };
  const mustBeOpen = (server: string) => servers.mustBeOpen(server);
  const operations: Operations = new Operations({
    ...{ clock, guards, pins, budgets, cache, lists, throttle, serverThrottle, reconnects, serverOf, findServer },
    ...{ targetOf, mustBeOpen, clean, audit, alive },
    exchange: (...exchange) => listOperations.exchange(...exchange),
  });
  return {
    ...{ clock, connector, servers, instances, events, audit, rules, budgets, cache, throttle, pins, histories },
    ...{
      listOperations,
      listings,
      subscriptions,
      discovery,
      operations,
      alive,
      stderrTails,
      onProblem,
      dropAnswers,
      forget,
      endWaits,
      serverThrottle,
    },
    approvals,
    marks,
    onConfigProblem,
    secrets: options.secrets,
    flushState: () => state?.flush(),
    configured: new ConfiguredServers(servers, onConfigProblem),
    startupListing,
    routing,
    statusSources: {
      ...{ clock, registry: servers.registry, serverOf, cache, pins, connector, instances, serverThrottle, routing },
      listings,
    },
  };
}

/** `closeCalls` runs after the servers have ended: their last answers go into the log of calls. */
export async function closeHostParts(parts: HostParts, closeCalls: () => Promise<void>): Promise<void> {
  const { servers, instances, histories, connector, onProblem } = parts;
  try {
    // A failure of one server must not keep the others running.
    const closed = servers.close().catch(onProblem);
    for (const name of servers.names()) parts.endWaits(servers.find(name));
    await Promise.all([closed, instances.close()]);
    histories?.flush();
    parts.flushState();
    servers.registry.clear();
  } finally {
    await closeCalls().catch(onProblem);
    await connector.close();
    parts.alive.close();
  }
}

type Stderr = ReturnType<StdioChannel['describe']>['stderr'];

/**
 * The end of each server's stderr, also after its process has ended: it often shows the cause.
 * Invariants: stores, for each server, the text of the newest process and of the last earlier process that wrote anything. The
 * earlier text is shown until the newest process has written. Text of client instances is not stored.
 */
export class StderrTails {
  readonly #byServer = new Map<string, { readonly now: Stderr; readonly before: Stderr | undefined }>();

  /** Ignores channels without a process. */
  opened(server: string, channel: Channel): void {
    if (channel instanceof StdioChannel) this.began(server, channel.describe().stderr);
  }

  began(server: string, now: Stderr): void {
    const last = this.#byServer.get(server);
    this.#byServer.set(server, { now, before: last && (last.now.tail() === '' ? last.before : last.now) });
  }

  /** Undefined: the server never had a process. */
  of(server: string, maxBytes?: number): string | undefined {
    const tails = this.#byServer.get(server);
    return tails && (tails.now.tail(maxBytes) || tails.before?.tail(maxBytes) || '');
  }

  /** Like `of`, by lines. */
  linesOf(server: string, maxBytes?: number): readonly StderrLine[] {
    const { now, before } = this.#byServer.get(server) ?? {};
    const lines = now?.lines(maxBytes) ?? [];
    return lines.some(({ text }) => text !== '') ? lines : (before?.lines(maxBytes) ?? lines);
  }

  forget(server: string): void {
    this.#byServer.delete(server);
  }
}
