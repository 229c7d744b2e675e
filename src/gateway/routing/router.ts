/**
 * Passes every client request to the part that wire/methods.ts names for its method.
 * Not here: reading and writing messages (http/, stdio/), requests of servers to clients (bridge/).
 * Invariant: `handle` never throws. Every exchange is ended once; only the client or the gateway ends a listen stream.
 */
import type { UnroutedTemplates } from '../../host/status.js';
import type { Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { embedder, type Principal } from '../../policy/operation.js';
import { scanToolHeaders } from '../../session/eras/modern/tool-headers.js';
import type { ListedItem, ListMethod } from '../../session/lists.js';
import { stringOf, uniqueMembers } from '../../wire/json-members.js';
import { METHODS, RPC } from '../../wire/methods.js';
import type { Bridge } from '../bridge/bridged-request.js';
import { eraOf } from '../eras/eras.js';
import {
  type Client,
  type ClientSession,
  type CurrentPrincipal,
  type EndpointId,
  type Exchange,
  invalidParams,
  type MirroredHeader,
  type Router,
  type RpcFailure,
} from '../exchange.js';
import { ClientSubscriptions } from '../listening/client-subscriptions.js';
import { ListWatch } from '../listening/list-watch.js';
import { isLogLevel, LogLevels, logLevels } from '../listening/log-levels.js';
import type { Upstreams } from '../upstreams.js';
import { ListPages, readCursor } from '../views/list-pages.js';
import type { Position } from '../views/table.js';
import { MatchPacer } from '../views/uri-templates.js';
import { Views } from '../views/views.js';
import { describeEndpoint, ServerInfoCache, serverInfoOf } from './capabilities.js';
import { Relay } from './relay.js';

export interface RouterOptions {
  readonly upstreams: Upstreams;
  readonly bridge: Bridge;
  readonly clock: Clock;
  /** True while neither keys nor roles are configured. Only then may results have `cacheScope: "public"`. Default: never. */
  readonly mayBePublic?: () => boolean;
  /** serverInfo of endpoints with many servers. */
  readonly serverInfo: { readonly name: string; readonly version: string };
  /** Receives internal errors. The client gets a generic error. */
  readonly onProblem?: (error: unknown) => void;
}

export class GatewayRouter implements Router {
  readonly #upstreams: Upstreams;
  readonly #views: Views;
  readonly #lists = new ListPages();
  readonly #servers: ServerInfoCache;
  readonly #levels: LogLevels;
  readonly #watch: ListWatch;
  readonly #subscriptions: ClientSubscriptions;
  readonly #relay: Relay;
  readonly #bridge: Bridge;
  readonly #mayBePublic: () => boolean;
  readonly #unlisten: () => void;
  readonly #onProblem: (error: unknown) => void;
  /** Headers by tool. A schema may be large, so it is scanned once, not on every call. */
  readonly #mirrored = new WeakMap<ListedItem, readonly MirroredHeader[]>();
  readonly #pacer = new MatchPacer();
  #rulesRevision: number;

  constructor(options: RouterOptions) {
    const { upstreams, bridge, clock, serverInfo, mayBePublic = () => false, onProblem = () => {} } = options;
    this.#upstreams = upstreams;
    this.#bridge = bridge;
    this.#onProblem = onProblem;
    this.#rulesRevision = upstreams.rulesRevision;
    this.#views = new Views(upstreams, ({ server, uri }, first) => onProblem(sharedUri(server, uri, first)));
    this.#servers = new ServerInfoCache(upstreams, JSON.stringify(serverInfo));
    this.#levels = new LogLevels(upstreams);
    this.#watch = new ListWatch(this.#views, clock);
    const shared = { upstreams, views: this.#views, servers: this.#servers };
    this.#subscriptions = new ClientSubscriptions({ ...shared, clock, lists: this.#watch, pacer: this.#pacer });
    this.#relay = new Relay({ ...shared, bridge, levels: this.#levels, mayBePublic, onProblem });
    this.#mayBePublic = mayBePublic;
    this.#unlisten = upstreams.onKnownChanged((server) => {
      this.#views.changed(server);
      this.#servers.changed(server);
      this.#levels.changed(server);
      this.#watch.changed();
    });
  }

  hasEndpoint(endpoint: EndpointId, principal: Principal): boolean {
    return this.#views.has(endpoint, principal);
  }

  handle(exchange: Exchange): void {
    try {
      this.#noticeRules();
      this.#route(exchange);
    } catch (error) {
      this.#broken(exchange, error);
    }
  }

  opened(session: ClientSession): void {
    this.#subscriptions.opened(session);
    const end = () => this.#forget(session);
    if (session.signal.aborted) end();
    else session.signal.addEventListener('abort', end, { once: true });
  }

  endedBeforeOpen(client: Pick<Client, 'id'>): void {
    this.#forget(client);
  }

  mirroredArguments(endpoint: EndpointId, principal: Principal, tool: string): readonly MirroredHeader[] | undefined {
    const entry = this.#views.of(endpoint, principal).table('tools/list').byName.get(tool);
    if (!entry) return undefined;
    let mirrored = this.#mirrored.get(entry.item);
    if (!mirrored) {
      const scan = scanToolHeaders(entry.item.raw);
      mirrored = scan.ok ? scan.mirrored.map(({ header, path }) => ({ name: header, path })) : [];
      this.#mirrored.set(entry.item, mirrored);
    }
    return mirrored.length === 0 ? undefined : mirrored;
  }

  /** Uses the embedder's view of `/mcp`, which has all servers. An endpoint with fewer servers routes at least the same templates. */
  unroutedOf(server: string): UnroutedTemplates | undefined {
    return this.#views.of(everything, embedder).unroutedOf(server);
  }

  keysChanged(now: CurrentPrincipal): void {
    this.#watch.keysChanged(now);
    // The state with which a client continues a call is valid only for the role that it was issued to.
    this.#bridge.endWaiting?.(({ principal }) => now(principal) !== principal);
  }

  /** Ends listen streams with their result, and releases subscriptions. */
  close(): void {
    this.#unlisten();
    this.#bridge.close?.();
    this.#subscriptions.close();
    this.#watch.close();
  }

  #route(exchange: Exchange): void {
    const { client, method } = exchange;
    const row = METHODS.get(method);
    if (row?.isEraSpecific && !eraOf(client.era).ownMethods.has(method)) return exchange.fail(methodNotFound);
    switch (row?.handledBy) {
      case 'call':
        return this.#relay.call(exchange);
      case 'list':
        return this.#afterStartupListing(exchange, () => this.#list(exchange, method as ListMethod));
      case 'passthrough':
        return this.#inTurn(exchange, () => this.#relay.passthrough(exchange, row));
      case 'ping':
        return exchange.succeed('{}');
      case 'handshake':
        // The handshake never waits for a server: clients have a short timeout here. `list_changed` announces later servers.
        return exchange.succeed(
          eraOf(client.era).handshakeResult(client, describeEndpoint(this.#viewOf(client), this.#servers)),
        );
      case 'logLevel':
        return this.#setLevel(exchange);
      case 'subscribe':
        return this.#inTurn(exchange, () =>
          this.#afterStartupListing(exchange, () => this.#subscriptions.subscribe(exchange)),
        );
      case 'unsubscribe':
        return this.#subscriptions.unsubscribe(exchange);
      case 'listen':
        return this.#subscriptions.listen(exchange);
      default:
        return exchange.fail(methodNotFound);
    }
  }

  #list(exchange: Exchange, method: ListMethod): void {
    const { client, params } = exchange;
    const view = this.#viewOf(client);
    const after = params && pageAfter(params, method);
    if (after === 'invalid') return exchange.fail(invalidParams('invalid cursor'));
    const states = this.#views.statesOf(client.endpoint, client.principal);
    const { ttlMs, isPublic } = view.table(method);
    const serverInfo = serverInfoOf(view, this.#servers);
    const era = eraOf(client.era);
    const { needsObjectOutput } = era;
    const trailer = era.listMembers(serverInfo, ttlMs, isPublic && this.#mayBePublic());
    this.#watch.given(client, method);
    exchange.succeed(this.#lists.page({ view, states, method, trailer, needsObjectOutput, after }));
  }

  #setLevel(exchange: Exchange): void {
    const { client, params } = exchange;
    const [value] = (params && uniqueMembers(params, ['level'])) ?? [];
    const level = value && stringOf(value);
    if (!isLogLevel(level)) return exchange.fail(invalidParams(`level must be one of ${logLevels.join(', ')}`));
    this.#levels.set(client.id, level, client.principal, this.#viewOf(client).servers);
    exchange.succeed('{}');
  }

  /** Matching a long URI may take milliseconds, so other requests run between two such matches. */
  #inTurn(exchange: Exchange, run: () => void): void {
    const bytes = exchange.params?.length ?? 0;
    const turn = bytes > shortParamsBytes ? this.#pacer.wait(bytes) : undefined;
    if (!turn) return run();
    void turn.then(() => this.#inTurn(exchange, run)).catch((error: unknown) => this.#broken(exchange, error));
  }

  /** At boot a list waits a bounded time for servers of its endpoint that are not listed yet (catalog/startup-listing.ts). */
  #afterStartupListing(exchange: Exchange, answer: () => void): void {
    const listing = this.#viewOf(exchange.client).startupListing();
    if (!listing) return answer();
    const guarded = () => {
      try {
        answer();
      } catch (error) {
        this.#broken(exchange, error);
      }
    };
    listing.then(guarded, guarded);
  }

  #forget({ id }: Pick<Client, 'id'>): void {
    this.#levels.forget(id);
    this.#bridge.endWaiting?.((client) => client.id === id);
    this.#upstreams.endInstance(id);
  }

  #viewOf({ endpoint, principal }: Client) {
    return this.#views.of(endpoint, principal);
  }

  /** The router detects changed rules at the next request. */
  #noticeRules(): void {
    const { rulesRevision } = this.#upstreams;
    if (this.#rulesRevision === rulesRevision) return;
    this.#rulesRevision = rulesRevision;
    this.#watch.changed();
  }

  #broken(exchange: Exchange, error: unknown): void {
    this.#onProblem(error);
    exchange.fail({ code: RPC.internalError, message: 'internal error' });
  }
}

/** Params up to this size contain a short URI, which is matched at once. */
const shortParamsBytes = 256;
const everything: EndpointId = { kind: 'all' };
const methodNotFound: RpcFailure = { code: RPC.methodNotFound, message: 'method not found' };
const uriCharsShown = 200;

const sharedUri = (server: string, uri: string, first: string): HostError =>
  new HostError(
    'invalid_spec',
    `servers '${first}' and '${server}' have the same resources, such as ${uri.slice(0, uriCharsShown)}`,
    {
      server,
      reason: 'shared_uri',
      hint: `at /mcp they are listed as hostler://${first}/... and hostler://${server}/..., and the plain URI is refused`,
    },
  );

export const createRouter = (options: RouterOptions): GatewayRouter => new GatewayRouter(options);

/** Returns undefined without a cursor: the client requests the first page. */
function pageAfter(params: Buffer, method: ListMethod): Position | undefined | 'invalid' {
  const members = uniqueMembers(params, ['cursor']);
  if (!members) return 'invalid';
  const [value] = members;
  if (!value) return undefined;
  const cursor = stringOf(value);
  return (cursor !== undefined && readCursor(method, cursor)) || 'invalid';
}
