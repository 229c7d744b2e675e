import { setBounded } from '../kernel/bounded-map.js';

/** The endpoint of a client: all servers, one server, or a named group (`/mcp`, `/mcp/<server>`, `/mcp/@<group>`). */
export type EndpointId =
  | { readonly kind: 'all' }
  | { readonly kind: 'server'; readonly server: string }
  | { readonly kind: 'group'; readonly group: string };

const prefix = '/mcp';

/** Cache of recent paths. Views compare endpoints by identity, so one path should give one object. */
const parsed = new Map<string, EndpointId>();
const parsedMax = 64;
const parsedCharsMax = 256;

/** Returns undefined for a path outside `/mcp`. Names are not decoded: no server name has a slash or a percent sign. */
export function parseEndpointPath(path: string): EndpointId | undefined {
  const known = parsed.get(path);
  if (known) return known;
  const endpoint = read(path);
  if (endpoint && path.length <= parsedCharsMax) setBounded(parsed, path, endpoint, parsedMax);
  return endpoint;
}

function read(path: string): EndpointId | undefined {
  if (path === prefix || path === `${prefix}/`) return { kind: 'all' };
  if (!path.startsWith(`${prefix}/`)) return undefined;
  const name = path.slice(prefix.length + 1);
  if (name.includes('/') || name === '' || name === '@') return undefined;
  return name.startsWith('@') ? { kind: 'group', group: name.slice(1) } : { kind: 'server', server: name };
}

export const endpointKey = (endpoint: EndpointId): string =>
  endpoint.kind === 'all' ? '' : endpoint.kind === 'server' ? endpoint.server : `@${endpoint.group}`;
