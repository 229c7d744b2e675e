/** Connection pools to one origin. The timeouts of undici are off: the peer has the deadlines, and calls may last longer. */
import type { Dispatcher } from 'undici';
import type { Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import type { Random } from '../../kernel/random.js';
import type { Environment } from '../environment.js';
import type { TokenSource } from './auth-token.js';
import { checkUrl, type Dial, guardedDial } from './dial-guard.js';
import { proxyHeaders, proxyOf, trustedAuthorities, tunnelled } from './proxy.js';
import { undici } from './undici.js';

export interface HttpSpec {
  readonly server: string;
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly tokens?: TokenSource | undefined;
  /** Maximum number of concurrent calls. Further calls wait. */
  readonly connections?: number;
}

export interface HttpDeps {
  readonly clock: Clock;
  readonly random: Random;
  /** Names the proxy and the certificate authorities. Default: none. */
  readonly env?: Environment | undefined;
  /** Opens connections. Default: to any address, because the operator configured the URL. */
  readonly dial?: Dial;
  /** Replaces the pool of undici in simulations on a fake clock, which have no sockets. */
  readonly pool?: (origin: string, connections: number) => Dispatcher;
}

export const connectionsDefault = 64;
const headerBytesMax = 16 * 1024;

export function openPool(spec: HttpSpec, deps: HttpDeps, connections: number): Dispatcher {
  const { env = {}, dial } = deps;
  const url = specUrl(spec);
  const { origin, protocol } = url;
  if (deps.pool) return deps.pool(origin, connections);
  const authorities = trustedAuthorities(env);
  const direct = dial ?? guardedDial({ policy: 'any', server: spec.server, authorities });
  const proxy = dial ? undefined : proxyOf(url, env);
  const options = {
    connections,
    pipelining: 1,
    headersTimeout: 0,
    bodyTimeout: 0,
    maxHeaderSize: headerBytesMax,
  };
  if (!proxy || protocol === 'https:')
    return new (undici().Pool)(origin, { ...options, connect: proxy ? tunnelled(proxy, direct, authorities) : direct });
  return absolute(new (undici().Pool)(proxy.origin, { ...options, connect: direct }), url, proxyHeaders(proxy));
}

/** Changes the pool of a proxy: its requests get absolute URLs of one origin. */
function absolute(pool: Dispatcher, { origin, host }: URL, authorization: readonly string[]): Dispatcher {
  const dispatch = pool.dispatch.bind(pool);
  pool.dispatch = (options, handler) => {
    const headers = [...(options.headers as string[]), 'host', host, ...authorization];
    return dispatch({ ...options, path: `${origin}${options.path}`, headers }, handler);
  };
  return pool;
}

/** Throws `invalid_spec` naming the field. */
export function specUrl(spec: HttpSpec): URL {
  const url = checkUrl(spec.url, 'any', spec.server);
  if (url instanceof HostError) throw url;
  url.hash = '';
  return url;
}
