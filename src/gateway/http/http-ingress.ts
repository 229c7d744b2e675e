/**
 * MCP over HTTP: one `node:http` server with all eras at every endpoint.
 * Each request passes these guards in this order before its body is read: Host and Origin, path, key, endpoint, method, type,
 * length. parse-post.ts then passes the message to its era. Routes (routes.ts) declare the guards they need.
 * Not here: checking keys (`authenticate`), handling requests (`router`).
 * Invariants: the router gets a request only after it passed all guards, and never gets its headers. All data stored for a client
 * has a bound (http-limits.ts).
 */
import { createServer, type Server, type ServerOptions, type ServerResponse } from 'node:http';
import { createServer as createTlsServer, type Server as TlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { ByteBudget } from '../../kernel/byte-budget.js';
import { sleep } from '../../kernel/clock.js';
import { newId } from '../../kernel/random.js';
import { anyAddress, bracketed, reachable } from '../../transports/http/host-name.js';
import { type OriginGuard, originGuard } from '../../transports/http/origin-guard.js';
import { readTls, type TlsContext, type TlsPaths, watchTls } from '../../transports/http/tls-files.js';
import type { ClientEra } from '../eras/era.js';
import { claimant, ERAS } from '../eras/eras.js';
import type { CurrentPrincipal } from '../exchange.js';
import { parseEndpointPath } from '../exchange.js';
import type { IngressFigures } from '../metrics/metric-table.js';
import { CrossOrigin } from './cross-origin.js';
import { HttpConnections, LingeringClose } from './http-connections.js';
import { HTTP_LIMITS, type HttpLimits } from './http-limits.js';
import type { Caller, IngressContext } from './ingress-context.js';
import { OpenExchanges } from './open-exchanges.js';
import { DirectBodyRequest, type ListeningEra, PostedBody } from './parse-post.js';
import {
  checkPost,
  countedResponse,
  failRequest,
  isClientName,
  REFUSALS,
  type Refusal,
  type RequestHeaders,
  refuseRequest,
  refuseSocket,
} from './reply.js';
import { type Route, RouteResponder, type Routes } from './routes.js';
import { StreamBeat } from './sse-stream.js';

export interface HttpListen {
  readonly host: string;
  /** 0: the system chooses a free port. */
  readonly port: number;
  /** Accepted Host headers, in addition to the names of this machine. */
  readonly hosts?: readonly string[];
  /** Origins of web pages that may send cross-origin requests. */
  readonly origins?: readonly string[];
  /** Serves HTTPS with these files. They are read again when they change. */
  readonly tls?: TlsPaths | undefined;
}

export interface HttpIngressOptions
  extends Pick<IngressContext, 'router' | 'clock' | 'random' | 'authenticate'>,
    Partial<Pick<IngressContext, 'newId' | 'onProblem'>> {
  readonly listen: HttpListen;
  readonly limits?: Partial<HttpLimits>;
  readonly routes?: Routes;
  /** True: requests get 503 with Retry-After until `opened` is called. */
  readonly opensLater?: boolean;
}

export interface HttpIngress {
  /** URL of `/mcp`, the endpoint with all servers; empty before `listen` resolves. */
  readonly url: string;
  readonly counts: { readonly exchanges: number; readonly sessions: number; readonly streams: number };
  /** Events stored for clients that lost their connection. */
  readonly storedEvents: { readonly events: number; readonly bytes: number };
  /** Resolves with `url`; rejects if the address cannot be bound. */
  listen(): Promise<string>;
  figures(): IngressFigures;
  /** With `opensLater`: reports that the host is open. */
  opened(): void;
  /** Replaces the allowed names and origins. The names of this machine stay allowed. */
  allow(names: Pick<HttpListen, 'hosts' | 'origins'>): void;
  /** Ends the sessions, requests and streams of revoked keys. */
  keysChanged(now: CurrentPrincipal): void;
  /** Refuses new requests and drains open ones up to `drainMs`, then closes the port. Routes are served until then. */
  close(drainMs: number): Promise<void>;
}

export async function createHttpIngress(options: HttpIngressOptions): Promise<HttpIngress> {
  return new Ingress(options, await Promise.all(ERAS.map(async (era) => ({ era, create: await era.loadHttp() }))));
}

interface LoadedEra {
  readonly era: ClientEra;
  readonly create: Awaited<ReturnType<ClientEra['loadHttp']>>;
}

/** Time to flush the last responses before sockets are destroyed. */
const flushMs = 1_000;

class Ingress implements HttpIngress {
  url = '';
  readonly #options: HttpIngressOptions;
  readonly #limits: HttpLimits;
  #guard: OriginGuard;
  #crossOrigin: CrossOrigin;
  readonly #routes: Routes;
  readonly #responder: RouteResponder;
  readonly #context: IngressContext;
  readonly #eras: readonly ListeningEra[];
  readonly #server: Server;
  readonly #connections: HttpConnections;
  /** Number of responses by the first digit of their status. */
  readonly #answers: Record<number, number> = {};
  #isOpen: boolean;
  #closing: Promise<void> | undefined;

  constructor(options: HttpIngressOptions, eras: readonly LoadedEra[]) {
    const { router, clock, random, listen, authenticate } = options;
    this.#options = options;
    this.#isOpen = !options.opensLater;
    const limits = { ...HTTP_LIMITS, ...options.limits };
    this.#limits = limits;
    this.#guard = this.#guardOf(listen);
    this.#crossOrigin = new CrossOrigin(listen.origins ?? []);
    this.#routes = options.routes ?? new Map();
    this.#connections = new HttpConnections(limits.connections);
    const context: IngressContext = {
      ...{ router, clock, random, limits, authenticate },
      newId: options.newId ?? newId,
      beat: new StreamBeat(clock, limits.keepAliveEveryMs),
      open: new OpenExchanges(limits.exchanges, clock, limits.silentMs),
      bodies: new ByteBudget(limits.bodiesBytes),
      lingering: new LingeringClose(clock, limits),
      keyChanges: 0,
      isStopping: false,
      onProblem: (error) => options.onProblem?.(error),
    };
    this.#context = context;
    this.#responder = new RouteResponder(context);
    this.#eras = eras.map(({ era, create }) => ({ era, http: create(context) }));
    this.#server = this.#createServer();
  }

  get counts() {
    const { open, beat } = this.#context;
    const sessions = this.#eras.reduce((sum, { http }) => sum + (http.sessions ?? 0), 0);
    return { exchanges: open.size, sessions, streams: beat.size };
  }

  get storedEvents() {
    return this.#eras.find(({ http }) => http.storedEvents)?.http.storedEvents ?? { events: 0, bytes: 0 };
  }

  figures(): IngressFigures {
    return {
      clients: Object.fromEntries(this.#eras.map(({ era, http }) => [era.name, http.clients])),
      httpAnswers: { ...this.#answers },
    };
  }

  opened(): void {
    this.#isOpen = true;
  }

  allow(names: Pick<HttpListen, 'hosts' | 'origins'>): void {
    this.#guard = this.#guardOf(names);
    this.#crossOrigin = new CrossOrigin(names.origins ?? []);
  }

  #guardOf({ hosts = [], origins = [] }: Pick<HttpListen, 'hosts' | 'origins'>): OriginGuard {
    return originGuard({ hosts: [...ownNames(this.#options.listen.host), ...hosts], origins });
  }

  listen(): Promise<string> {
    const { host, port } = this.#options.listen;
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(port, host, () => {
        this.#server.off('error', reject);
        this.#server.on('error', this.#context.onProblem);
        this.url = `${this.#options.listen.tls ? 'https' : 'http'}://${reachable(host)}:${(this.#server.address() as AddressInfo).port}/mcp`;
        resolve(this.url);
      });
    });
  }

  keysChanged(now: CurrentPrincipal): void {
    this.#context.keyChanges++;
    for (const { http } of this.#eras) http.keysChanged?.(now);
    this.#context.open.keysChanged(now);
    this.#responder.keysChanged(now);
  }

  close(drainMs: number): Promise<void> {
    this.#closing ??= this.#close(drainMs);
    return this.#closing;
  }

  async #close(drainMs: number): Promise<void> {
    const { clock, open, lingering } = this.#context;
    this.#context.isStopping = true;
    for (const { http } of this.#eras) http.endStreams?.();
    open.shutDown('endless');
    await Promise.race([open.emptied(), sleep(clock, drainMs)]);
    open.shutDown('all');
    open.close();
    for (const { http } of this.#eras) http.close?.();
    this.#responder.close();
    const closed = new Promise<void>((resolve) => {
      this.#server.close(() => resolve());
    });
    lingering.close();
    this.#connections.destroySoon();
    await Promise.race([closed, sleep(clock, flushMs)]);
    this.#server.closeAllConnections();
    await closed;
  }

  #createServer(): Server {
    const { headerBytes, headerMs, bodyMs, checkEveryMs, idleSocketMs } = this.#limits;
    const options = {
      maxHeaderSize: headerBytes,
      headersTimeout: headerMs,
      requestTimeout: headerMs + bodyMs,
      connectionsCheckingInterval: checkEveryMs,
      keepAliveTimeout: idleSocketMs,
      IncomingMessage: DirectBodyRequest,
      ServerResponse: countedResponse(this.#answers),
      // `RequestHeaders` relies on this.
      joinDuplicateHeaders: true,
      // The origin guard refuses a request without a Host.
      requireHostHeader: false,
    };
    const server = this.#options.listen.tls
      ? this.#tlsServer(options, this.#options.listen.tls)
      : createServer(options);
    // Node silently drops headers beyond `maxHeadersCount`; `maxHeaderSize` already bounds them.
    server.maxHeadersCount = 0;
    if (!this.#options.listen.tls) server.on('connection', (socket) => this.#connections.add(socket));
    server.on('request', (request, response) => this.#take(request, response, false));
    server.on('checkContinue', (request, response) => this.#take(request, response, true));
    server.on('clientError', (error: NodeJS.ErrnoException, socket: Duplex) =>
      refuseSocket(error.code, socket, this.#context.lingering),
    );
    return server;
  }

  #tlsServer(options: ServerOptions<typeof DirectBodyRequest>, tls: TlsPaths): TlsServer<typeof DirectBodyRequest> {
    const { headerMs, connections } = this.#limits;
    const server = createTlsServer({ ...options, ...readTls(tls), handshakeTimeout: headerMs });
    // Also bounds connections during their handshake, which `HttpConnections` does not count.
    server.maxConnections = 2 * connections;
    server.on('secureConnection', (socket: Socket) => this.#connections.add(socket));
    const { clock, onProblem } = this.#context;
    server.once('listening', () => {
      const renew = (context: TlsContext) => server.setSecureContext({ ...context });
      server.once('close', watchTls(tls, clock, renew, onProblem));
    });
    return server;
  }

  /** `expectsContinue`: the client waits for 100 before it sends the body. */
  #take(request: DirectBodyRequest, response: ServerResponse, expectsContinue: boolean): void {
    const headers = request.headers as RequestHeaders;
    const { lingering } = this.#context;
    // The connection closes after this answer, because the client requested that or uses HTTP/1.0.
    if (!response.shouldKeepAlive) lingering.insteadOfCut(request);
    // An internal error must fail only this request.
    try {
      const refusal = this.#admit(request, headers, response, expectsContinue);
      if (refusal) refuseRequest(lingering, refusal, request, headers, response);
    } catch (error) {
      failRequest(this.#context, response, error);
    }
  }

  #admit(
    request: DirectBodyRequest,
    headers: RequestHeaders,
    response: ServerResponse,
    expectsContinue: boolean,
  ): Refusal | undefined {
    const { authenticate, router } = this.#options;
    const path = pathOf(request.url);
    const route = this.#routes.get(path);
    if (!this.#isOriginAllowed(route, headers)) return REFUSALS.origin;
    const { origin } = headers;
    if (origin !== undefined && this.#crossOrigin.isListed(origin)) {
      this.#crossOrigin.mark(origin, response);
      // Browsers send a preflight without the key.
      if (this.#crossOrigin.answerPreflight(request.method, headers, response)) return undefined;
    }
    if (route) return this.#show(route, request, headers, response);
    const endpoint = parseEndpointPath(path);
    if (!endpoint) return REFUSALS.path;
    const principal = authenticate(headers.authorization);
    if (!principal) return REFUSALS.key;
    if (!this.#connections.claim(request.socket, principal.id, response)) return REFUSALS.connections;
    if (!this.#isOpen) return REFUSALS.starting;
    if (!router.hasEndpoint(endpoint, principal)) return REFUSALS.endpoint;
    // While stopping, an open request may still wait for the client's answer to a question. That answer is a POST with a
    // session id. parse-post.ts refuses other messages.
    if (this.#context.isStopping && (request.method !== 'POST' || headers['mcp-session-id'] === undefined))
      return REFUSALS.stopping;
    const client = headers['hostler-client'];
    if (client !== undefined && !isClientName(client)) return REFUSALS.client;
    const caller: Caller = { principal, endpoint, headers };
    if (request.method === 'POST') return this.#post(caller, request, response, expectsContinue);
    if (request.method !== 'GET' && request.method !== 'DELETE') return REFUSALS.method;
    const { http } = claimant(this.#eras, headers['mcp-protocol-version'], undefined);
    const refused = request.method === 'GET' ? http.get?.(caller, response) : http.delete?.(caller, response);
    return http.get && http.delete ? refused : REFUSALS.postOnly;
  }

  #isOriginAllowed(route: Route | undefined, { host, origin }: RequestHeaders): boolean {
    if (route?.isPublic || this.#guard(host, origin)) return true;
    return route?.checksHost === false && (origin === undefined || this.#crossOrigin.isListed(origin));
  }

  #show(
    route: Route,
    request: DirectBodyRequest,
    headers: RequestHeaders,
    response: ServerResponse,
  ): Refusal | undefined {
    if (request.method !== 'GET' && request.method !== 'HEAD') return REFUSALS.routeMethod;
    const principal = route.isPublic ? undefined : this.#options.authenticate(headers.authorization);
    if (!route.isPublic) {
      if (!principal) return REFUSALS.key;
      if (!route.mayRead(principal)) return REFUSALS.role;
    }
    this.#responder
      .answer(route, principal, request.method === 'HEAD', response)
      .catch((error) => failRequest(this.#context, response, error));
    return undefined;
  }

  #post(
    caller: Caller,
    request: DirectBodyRequest,
    response: ServerResponse,
    expectsContinue: boolean,
  ): Refusal | undefined {
    const refusal = checkPost(caller.headers, this.#limits.bodyBytes);
    if (refusal) return refusal;
    if (!this.#context.open.admits(caller.principal.id)) return REFUSALS.busy;
    if (expectsContinue) response.writeContinue();
    request.takeBody(new PostedBody(this.#context, this.#eras, caller, request, response));
    return undefined;
  }
}

const pathOf = (url = ''): string => {
  const query = url.indexOf('?');
  return query < 0 ? url : url.slice(0, query);
};

/** The bind address is an accepted Host, unless it is a wildcard address. */
const ownNames = (host: string): string[] => (anyAddress.has(host) ? [] : [bracketed(host)]);
