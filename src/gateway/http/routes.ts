/**
 * Pages outside of MCP (`/healthz`, `/metrics`): one text, or a stream of events (SSE).
 * Not here: the table of routes (gateway.ts); the guards before them (http-ingress.ts).
 * Invariants: a client that falls behind by more than the bound is disconnected (sse-stream.ts). A stream ends when the key
 * that opened it is revoked.
 */
import type { ServerResponse } from 'node:http';
import type { Principal } from '../../policy/operation.js';
import type { CurrentPrincipal } from '../exchange.js';
import type { IngressContext } from './ingress-context.js';
import { SseStream } from './sse-stream.js';

interface RouteAnswer {
  readonly status: number;
  readonly contentType: string;
  readonly body: string;
}

export interface RouteEvents {
  /** Returns false if the client has gone, or was disconnected because it reads too slowly. */
  send(event: string, data: string): boolean;
  end(): void;
}

/** A route has either `answer` or `stream`. */
interface RouteContent {
  answer?(): RouteAnswer | Promise<RouteAnswer>;
  /** Called for each client. Returns a function that is called when the stream has ended. */
  stream?(events: RouteEvents): () => void;
}

/** Answered without checks of key, Host and Origin: health checks reach Hostler by other addresses. Its text contains no secrets. */
interface PublicRoute extends RouteContent {
  readonly isPublic: true;
}

/** Needs a key, and refuses web pages of other origins. */
export interface KeyedRoute extends RouteContent {
  readonly isPublic: false;
  /**
   * May be false only if a key is required. A page that uses DNS rebinding sends no Origin with a GET, so without the Host
   * check only the key stops it.
   */
  readonly checksHost: boolean;
  mayRead(principal: Principal): boolean;
}

export type Route = PublicRoute | KeyedRoute;

/** Routes by exact path. */
export type Routes = ReadonlyMap<string, Route>;

const lineEnd = /\r\n|\r|\n/g;

export class RouteResponder {
  readonly #context: IngressContext;
  readonly #streams = new Map<SseStream, { readonly route: Route; readonly principal: Principal | undefined }>();

  constructor(context: IngressContext) {
    this.#context = context;
  }

  /** `principal` is undefined for a public route. */
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

  keysChanged(now: CurrentPrincipal): void {
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
