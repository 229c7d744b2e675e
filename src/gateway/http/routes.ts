/** Plain pages beside the protocol (`/healthz`, `/readyz`, `/metrics`): mounted by whoever has something to show. */
import type { ServerResponse } from 'node:http';

export interface RouteAnswer {
  readonly status: number;
  readonly contentType: string;
  readonly body: string;
}

export interface Route {
  /** It tells of all servers: shown to nobody without a key, nor to one who by a role may see some of them only. */
  readonly isForOperators: boolean;
  answer(): RouteAnswer | Promise<RouteAnswer>;
}

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
