/**
 * MCP over HTTP: one server on `node:http`, both eras at every endpoint.
 * Each request passes the guards in one order, before its body is read: Host and Origin, path, key, endpoint, method, type,
 * length. What passes is a message for its era (parse-post.ts). Plain pages (routes.ts) say which guards they need.
 * Not here: what keys there are (`authenticate`), what requests mean (`router`).
 *
 * Invariants: nothing of a request reaches the router before all guards have passed, and never its headers; everything that
 * is held for a client has a bound (http-limits.ts).
 */
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { ByteBudget } from '../../kernel/byte-budget.js';
import { type Clock, sleep } from '../../kernel/clock.js';
import { type NewId, newId, type Random } from '../../kernel/random.js';
import type { Principal } from '../../policy/operation.js';
import { type OriginGuard, originGuard } from '../../transports/http/origin-guard.js';
import { isClientName } from '../client-id.js';
import { parseEndpointPath } from '../endpoint-id.js';
import { LegacyHttp } from '../eras/legacy/http.js';
import { SessionTable } from '../eras/legacy/session-table.js';
import { namesModern } from '../eras/modern/header-checks.js';
import type { Caller } from '../eras/modern/http.js';
import type { PrincipalNow, Router } from '../exchange.js';
import type { IngressFigures } from '../metrics/figures.js';
import { countedResponse } from './counted-response.js';
import { CrossOrigin } from './cross-origin.js';
import { DirectBodyRequest } from './direct-body-request.js';
import { HttpConnections } from './http-connections.js';
import { HTTP_LIMITS, type HttpLimits } from './http-limits.js';
import type { IngressContext } from './ingress-context.js';
import { LingeringClose } from './lingering-close.js';
import { OpenExchanges } from './open-exchanges.js';
import { PostParser } from './parse-post.js';
import { acceptsEvents, checkPost, isTooMuchToDrain } from './post-guard.js';
import { REFUSALS, type Refusal } from './refusals.js';
import { refuse } from './reply.js';
import { type BodyFault, GatheredBody } from './request-body.js';
import type { RequestHead } from './request-head.js';
import { answerRoute, type Route, type Routes } from './routes.js';
import { refuseSocket } from './socket-refusal.js';
import { StreamBeat } from './sse-stream.js';

export interface HttpListen {
  readonly host: string;
  /** 0: any. */
  readonly port: number;
  /** Names we are reached by besides those of this machine. */
  readonly hosts?: readonly string[];
  /** Origins of pages that may call us from elsewhere. */
  readonly origins?: readonly string[];
}

/** Who holds this key. Undefined: nobody whom we know. */
export type Authenticate = (authorization: string | undefined) => Principal | undefined;

export interface HttpIngressOptions {
  readonly router: Router;
  readonly clock: Clock;
  readonly random: Random;
  readonly authenticate: Authenticate;
  readonly listen: HttpListen;
  readonly limits?: Partial<HttpLimits>;
  readonly routes?: Routes;
  /** Whether there is anything to ask yet. Absent: from the beginning. */
  readonly isOpen?: () => boolean;
  /** What went wrong inside; the request it happened to was answered. */
  readonly onProblem?: (error: unknown) => void;
  /** Names sessions; unguessable. */
  readonly newId?: NewId;
}

export interface HttpIngress {
  /** Where all servers are; known once it listens. */
  readonly url: string;
  /** What is open now. */
  readonly counts: { readonly exchanges: number; readonly sessions: number; readonly streams: number };
  /** Events kept for clients that lost their connection, and the memory they take. */
  readonly kept: { readonly events: number; readonly bytes: number };
  /** Resolves with `url`; rejects when the address cannot be had. */
  listen(): Promise<string>;
  /** For metrics. */
  figures(): IngressFigures;
  /** From now on these names of ours and these origins, and those of this machine. */
  allow(names: Pick<HttpListen, 'hosts' | 'origins'>): void;
  /** Keys changed: ends what is open in the name of somebody whose key does not count any more. */
  rekeyed(now: PrincipalNow): void;
  /**
   * Refuses new requests, waits for open ones up to `drainMs`, then ends them and closes the port: until then routes are
   * answered. Safe to call again.
   */
  close(drainMs: number): Promise<void>;
}

export const createHttpIngress = (options: HttpIngressOptions): HttpIngress => new Ingress(options);

/** For the last answers to leave, after nothing is open any more. */
const flushMs = 1_000;

class Ingress implements HttpIngress {
  url = '';
  readonly #options: HttpIngressOptions;
  readonly #limits: HttpLimits;
  #guard: OriginGuard;
  #crossOrigin: CrossOrigin;
  readonly #routes: Routes;
  readonly #open: OpenExchanges;
  readonly #bodies: ByteBudget;
  readonly #beat: StreamBeat;
  readonly #sessions: SessionTable;
  readonly #legacy: LegacyHttp;
  readonly #intake: PostParser;
  readonly #server: Server;
  readonly #connections: HttpConnections;
  readonly #lingering: LingeringClose;
  /** By the first digit of their status. */
  readonly #answers: Record<number, number> = {};
  #closing: Promise<void> | undefined;
  /** A body that arrives after one is looked at with the keys there are then. */
  #rekeyings = 0;

  constructor(options: HttpIngressOptions) {
    const { router, clock, random, listen } = options;
    this.#options = options;
    this.#limits = { ...HTTP_LIMITS, ...options.limits };
    this.#guard = this.#guardOf(listen);
    this.#crossOrigin = new CrossOrigin(listen.origins ?? []);
    this.#routes = options.routes ?? new Map();
    this.#bodies = new ByteBudget(this.#limits.bodiesBytes);
    this.#open = new OpenExchanges(this.#limits.exchanges, clock, this.#limits.silentMs);
    this.#connections = new HttpConnections(this.#limits.connections);
    this.#lingering = new LingeringClose(clock, this.#limits);
    this.#beat = new StreamBeat(clock, this.#limits.keepAliveEveryMs);
    const onProblem = (error: unknown): void => options.onProblem?.(error);
    const context: IngressContext = {
      ...{ router, clock, random, onProblem },
      ...{ limits: this.#limits, beat: this.#beat, open: this.#open },
    };
    this.#sessions = new SessionTable(clock, this.#limits);
    this.#legacy = new LegacyHttp(context, this.#sessions, options.newId ?? newId);
    this.#intake = new PostParser(context, this.#legacy);
    this.#server = this.#createServer();
  }

  get counts() {
    return { exchanges: this.#open.size, sessions: this.#sessions.size, streams: this.#beat.size };
  }

  get kept() {
    return this.#legacy.kept;
  }

  figures(): IngressFigures {
    return {
      legacySessions: this.#sessions.size,
      modernStreams: this.#open.endless,
      httpAnswers: { ...this.#answers },
    };
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
        this.#server.on('error', (error) => this.#options.onProblem?.(error));
        this.url = `http://${reachable(host)}:${(this.#server.address() as AddressInfo).port}/mcp`;
        resolve(this.url);
      });
    });
  }

  rekeyed(now: PrincipalNow): void {
    this.#rekeyings++;
    this.#sessions.rekeyed(now);
    this.#open.rekeyed(now);
  }

  close(drainMs: number): Promise<void> {
    this.#closing ??= this.#close(drainMs);
    return this.#closing;
  }

  async #close(drainMs: number): Promise<void> {
    const { clock } = this.#options;
    this.#intake.isStopping = true;
    this.#sessions.endStreams();
    this.#open.shutDown('endless');
    await Promise.race([this.#open.emptied(), sleep(clock, drainMs)]);
    this.#open.shutDown('all');
    this.#open.close();
    this.#sessions.endAll();
    const closed = new Promise<void>((resolve) => {
      this.#server.close(() => resolve());
    });
    this.#lingering.close();
    this.#connections.destroySoon();
    await Promise.race([closed, sleep(clock, flushMs)]);
    this.#server.closeAllConnections();
    await closed;
  }

  #createServer(): Server {
    const { headerBytes, headerMs, bodyMs, checkEveryMs, idleSocketMs } = this.#limits;
    const server = createServer({
      maxHeaderSize: headerBytes,
      headersTimeout: headerMs,
      requestTimeout: headerMs + bodyMs,
      connectionsCheckingInterval: checkEveryMs,
      keepAliveTimeout: idleSocketMs,
      IncomingMessage: DirectBodyRequest,
      ServerResponse: countedResponse(this.#answers),
      // A request without a Host is refused by the same guard as one with a wrong one.
      requireHostHeader: false,
    });
    // Their bytes are bounded; beyond a count they would be left out in silence.
    server.maxHeadersCount = 0;
    server.on('connection', (socket) => this.#connections.add(socket));
    server.on('request', (request, response) => this.#take(request, response, false));
    server.on('checkContinue', (request, response) => this.#take(request, response, true));
    server.on('clientError', (error: NodeJS.ErrnoException, socket: Duplex) =>
      refuseSocket(error.code, socket, this.#lingering),
    );
    return server;
  }

  #take(request: DirectBodyRequest, response: ServerResponse, isAskedFirst: boolean): void {
    const { head } = request;
    // The last answer on this connection: the client asked for that, or speaks HTTP/1.0.
    if (!response.shouldKeepAlive) this.#lingering.insteadOfCut(request);
    // A mistake of ours, or of a port's, costs the one request.
    try {
      const refusal = this.#admit(request, head, response, isAskedFirst);
      if (refusal) this.#refuse(refusal, request, head, response);
    } catch (error) {
      this.#failed(response, error);
    }
  }

  #failed(response: ServerResponse, error: unknown): void {
    this.#options.onProblem?.(error);
    refuse(response, REFUSALS.internal.status, REFUSALS.internal.failure);
  }

  #refuse(refusal: Refusal, request: DirectBodyRequest, head: RequestHead, response: ServerResponse): void {
    const { status, failure, headers, idText } = refusal;
    const isSaid = headers.includes('Connection');
    const mustClose = !request.complete && (isSaid || isTooMuchToDrain(head));
    if (mustClose) this.#lingering.insteadOfCut(request);
    refuse(response, status, failure, mustClose && !isSaid ? [...headers, 'Connection', 'close'] : headers, idText);
  }

  #admit(
    request: DirectBodyRequest,
    head: RequestHead,
    response: ServerResponse,
    isAskedFirst: boolean,
  ): Refusal | undefined {
    const { authenticate, router } = this.#options;
    const path = pathOf(request.url);
    const route = this.#routes.get(path);
    if (!this.#isOriginAllowed(route, head)) return REFUSALS.origin;
    if (this.#crossOrigin.isListed(head.origin)) {
      this.#crossOrigin.mark(head.origin, response);
      // A browser asks without the key.
      if (this.#crossOrigin.answerPreflight(request.method, head, response)) return undefined;
    }
    if (route) return this.#show(route, request, head, response);
    const endpoint = parseEndpointPath(path);
    if (!endpoint) return REFUSALS.path;
    const principal = authenticate(head.authorization);
    if (!principal) return REFUSALS.key;
    if (!this.#connections.claim(request.socket, principal.id, response)) return REFUSALS.connections;
    if (this.#options.isOpen?.() === false) return REFUSALS.starting;
    if (!router.hasEndpoint(endpoint, principal)) return REFUSALS.endpoint;
    // The answer to a question of a request under way comes as a POST of its session; the intake refuses all other messages.
    if (this.#intake.isStopping && (request.method !== 'POST' || head.sessionId === undefined))
      return REFUSALS.stopping;
    if (head.client !== undefined && !isClientName(head.client)) return REFUSALS.client;
    const caller: Caller = { principal, endpoint, head };
    switch (request.method) {
      case 'POST':
        return this.#post(caller, request, response, isAskedFirst);
      case 'GET':
        if (namesModern(head.protocolVersion)) return REFUSALS.modernMethod;
        if (head.accept !== undefined && !acceptsEvents.test(head.accept)) return REFUSALS.acceptStream;
        return this.#legacy.get(caller, response);
      case 'DELETE':
        if (namesModern(head.protocolVersion)) return REFUSALS.modernMethod;
        return this.#legacy.delete(caller, response);
      default:
        return REFUSALS.method;
    }
  }

  #isOriginAllowed(route: Route | undefined, { host, origin }: RequestHead): boolean {
    if (route?.isPublic || this.#guard(host, origin)) return true;
    return route?.checksHost === false && (origin === undefined || this.#crossOrigin.isListed(origin));
  }

  #show(route: Route, request: DirectBodyRequest, head: RequestHead, response: ServerResponse): Refusal | undefined {
    if (request.method !== 'GET' && request.method !== 'HEAD') return REFUSALS.routeMethod;
    if (!route.isPublic) {
      const principal = this.#options.authenticate(head.authorization);
      if (!principal) return REFUSALS.key;
      if (!route.mayRead(principal)) return REFUSALS.role;
    }
    answerRoute(route, request.method === 'HEAD', response).catch((error) => this.#failed(response, error));
    return undefined;
  }

  #post(
    caller: Caller,
    request: DirectBodyRequest,
    response: ServerResponse,
    isAskedFirst: boolean,
  ): Refusal | undefined {
    const { head } = caller;
    const refusal = checkPost(head, this.#limits.bodyBytes);
    if (refusal) return refusal;
    if (!this.#open.admits(caller.principal.id)) return REFUSALS.busy;
    if (isAskedFirst) response.writeContinue();
    const rekeyings = this.#rekeyings;
    const taken = (body: Buffer | BodyFault): void => {
      try {
        const isSame = rekeyings === this.#rekeyings;
        const principal = isSame ? caller.principal : this.#options.authenticate(head.authorization);
        const refused = !principal
          ? REFUSALS.key
          : body === 'too_large'
            ? REFUSALS.body
            : body === 'busy'
              ? REFUSALS.busyBodies
              : this.#intake.take(isSame ? caller : { ...caller, principal }, body, response);
        if (refused) this.#refuse(refused, request, head, response);
      } catch (error) {
        this.#failed(response, error);
      }
    };
    request.takeBody(new GatheredBody(this.#limits.bodyBytes, this.#bodies, taken));
    return undefined;
  }
}

const pathOf = (url = ''): string => {
  const query = url.indexOf('?');
  return query < 0 ? url : url.slice(0, query);
};

const anyAddress = new Set(['0.0.0.0', '::', '']);

/** What we bind to is a name of ours, unless it stands for every address. */
const ownNames = (host: string): string[] => (anyAddress.has(host) ? [] : [bracketed(host)]);

const bracketed = (host: string): string => (host.includes(':') ? `[${host}]` : host);

const reachable = (host: string): string =>
  host === '::' ? '[::1]' : anyAddress.has(host) ? '127.0.0.1' : bracketed(host);
