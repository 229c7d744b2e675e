/** Plain pages beside the protocol (`/healthz`, `/readyz`, `/metrics`): mounted by whoever has something to show. */
import type { ServerResponse } from 'node:http';
import type { Principal } from '../../policy/operation.js';

export interface RouteAnswer {
  readonly status: number;
  readonly contentType: string;
  readonly body: string;
}

interface RouteContent {
  answer(): RouteAnswer | Promise<RouteAnswer>;
}

/** Answered to every caller, whatever Host and Origin say, because a probe uses an address of its own: holds no secrets. */
export interface PublicRoute extends RouteContent {
  readonly isPublic: true;
}

/** Needs a key. A web page of another origin is refused. */
export interface KeyedRoute extends RouteContent {
  readonly isPublic: false;
  /**
   * False only where a key is required: a page that reaches us under a name of its own (DNS rebinding) sends no Origin with a
   * GET, so that without the Host only the key keeps it out.
   */
  readonly checksHost: boolean;
  mayRead(principal: Principal): boolean;
}

export type Route = PublicRoute | KeyedRoute;

/** By exact path. */
export type Routes = ReadonlyMap<string, Route>;

export async function answerRoute(route: Route, isHead: boolean, response: ServerResponse): Promise<void> {
  const { status, contentType, body } = await route.answer();
  if (response.destroyed) return;
  const bytes = Buffer.byteLength(body);
  response.writeHead(status, [
    ...['Content-Type', contentType, 'Content-Length', String(bytes)],
    ...['Cache-Control', 'no-store', 'X-Content-Type-Options', 'nosniff'],
  ]);
  response.end(isHead ? undefined : body);
}
