/**
 * CORS headers for pages of listed origins.
 * Not here: refusing requests by Host and Origin (transports/http/origin-guard.ts).
 */
import type { ServerResponse } from 'node:http';
import type { RequestHeaders } from './reply.js';

const methods = 'POST, GET, DELETE';
const headers = [
  ...['Authorization', 'Content-Type', 'Accept', 'Last-Event-ID'],
  ...['Mcp-Session-Id', 'Mcp-Protocol-Version', 'Mcp-Method', 'Mcp-Name', 'Hostler-Client'],
];
const exposed = 'Mcp-Session-Id, WWW-Authenticate, Retry-After';
/** Headers that repeat arguments of a call. */
const ownHeader = /^mcp-param-[a-z0-9-]{1,100}$/i;
const ownHeadersMax = 64;
/** Short, so that an origin that is no longer listed is refused soon. */
const cachedSeconds = 600;

export class CrossOrigin {
  readonly #origins: ReadonlySet<string>;

  constructor(origins: readonly string[]) {
    this.#origins = new Set(origins.map((origin) => origin.toLowerCase()));
  }

  isListed(origin: string | undefined): origin is string {
    return origin !== undefined && this.#origins.has(origin.toLowerCase());
  }

  mark(origin: string, response: ServerResponse): void {
    response.setHeader('Access-Control-Allow-Origin', origin);
    response.setHeader('Access-Control-Expose-Headers', exposed);
    response.setHeader('Vary', 'Origin');
  }

  /** Answers a preflight request. Returns false for any other request. */
  answerPreflight(method: string | undefined, received: RequestHeaders, response: ServerResponse): boolean {
    if (method !== 'OPTIONS' || received['access-control-request-method'] === undefined) return false;
    response.writeHead(204, preflight(received));
    response.end();
    return true;
  }
}

function preflight(received: RequestHeaders): string[] {
  const asked = (received['access-control-request-headers'] ?? '').split(',').map((name) => name.trim());
  const own = asked.filter((name) => ownHeader.test(name)).slice(0, ownHeadersMax);
  const isPrivate = received['access-control-request-private-network'] === 'true';
  return [
    ...['Access-Control-Allow-Methods', methods],
    ...['Access-Control-Allow-Headers', [...headers, ...own].join(', ')],
    ...['Access-Control-Max-Age', String(cachedSeconds)],
    ...(isPrivate ? ['Access-Control-Allow-Private-Network', 'true'] : []),
  ];
}
