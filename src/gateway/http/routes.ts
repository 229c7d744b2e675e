/**
 * Pages beside the protocol (`/healthz`, `/metrics`): one text, or a stream of events (SSE).
 * Not here: the guards before them (http-ingress.ts).
 * Invariants: a reader of a stream that falls behind by more than its bound loses its connection (sse-stream.ts); a stream ends with
 * the key that opened it.
 */
import type { ServerResponse } from 'node:http';
import type { Principal } from '../../policy/operation.js';
import type { PrincipalNow } from '../exchange.js';
import type { IngressContext } from './ingress-context.js';
import { SseStream } from './sse-stream.js';

interface RouteAnswer {
  readonly status: number;
  readonly contentType: string;
  readonly body: string;
}

/** One client of a streaming route. */
export interface RouteEvents {
  /** False: the client is gone, or lost its connection because it reads too slowly. */
  send(event: string, data: string): boolean;
  end(): void;
}

/** One of the two. */
interface RouteContent {
  answer?(): RouteAnswer | Promise<RouteAnswer>;
  /** Called for each client; returns what to call once its stream has ended. */
  stream?(events: RouteEvents): () => void;
}

/** Answered without checks of key, Host and Origin, because a probe uses an address of its own: contains no secrets. */
interface PublicRoute extends RouteContent {
  readonly isPublic: true;
}

/** Needs a key. A web page of another origin is refused. */
export interface KeyedRoute extends RouteContent {
  readonly isPublic: false;
  /**
   * False only where a key is required: a page that reaches us under a name of its own (DNS rebinding) sends no Origin with a
   * GET, so that without the Host check only the key refuses it.
   */
  readonly checksHost: boolean;
  mayRead(principal: Principal): boolean;
}

export type Route = PublicRoute | KeyedRoute;

/** By exact path. */
export type Routes = ReadonlyMap<string, Route>;

const lineEnd = /\r\n|\r|\n/g;

/** Answers requests for routes, and ends their streams with the keys that opened them. */
export class RouteResponder {
  readonly #context: IngressContext;
  readonly #streams = new Map<SseStream, { readonly route: Route; readonly principal: Principal | undefined }>();

  constructor(context: IngressContext) {
    this.#context = context;
  }

  /** `principal`: of a route that needs a key. */
  async answer(
    route: Route,
    principal: Principal | undefined,
    isHead: boolean,
    response: ServerResponse,
  ): Promise<void> {
    if (route.stream && !isHead) return this.#stream(route, principal, response);
    const answer = (await route.answer?.()) ?? { status: 200, contentType: 'text/event-stream', body: '' };
    if (response.destroyed) return;
    response.writeHead(answer.status, [
      ...['Content-Type', answer.contentType, 'Content-Length', String(Buffer.byteLength(answer.body))],
      ...['Cache-Control', 'no-store', 'X-Content-Type-Options', 'nosniff'],
    ]);
    response.end(isHead ? undefined : answer.body);
  }

  rekeyed(now: PrincipalNow): void {
    for (const [stream, { route, principal }] of [...this.#streams]) {
      if (route.isPublic || !principal) continue;
      const current = now(principal);
      if (!current || !route.mayRead(current)) stream.end();
    }
  }

  close(): void {
    for (const stream of [...this.#streams.keys()]) stream.end();
  }

  #stream(route: Route, principal: Principal | undefined, response: ServerResponse): void {
    const { limits, beat } = this.#context;
    const stream = new SseStream(response, limits, beat, ['X-Content-Type-Options', 'nosniff']);
    const release = route.stream?.({
      send: (event, data) => stream.write(`event: ${event}\ndata: ${data.replace(lineEnd, '\ndata: ')}\n\n`),
      end: () => stream.end(),
    });
    if (!stream.isOpen) return release?.();
    this.#streams.set(stream, { route, principal });
    stream.onEnd = () => {
      this.#streams.delete(stream);
      release?.();
    };
    stream.flush();
  }
}
