/** Names of a listening address in a URL and in a Host header. */
import { isIP } from 'node:net';

export const anyAddress: ReadonlySet<string> = new Set(['0.0.0.0', '::', '']);

/** The host as URLs write it: an IPv6 address has brackets. */
export const bracketed = (host: string): string =>
  isIP(host) === 6 ? new URL(`http://[${host.replace(/%.*$/, '')}]`).hostname : host.toLowerCase();

/** The address under which this machine reaches a listener at `host`. */
export const reachable = (host: string): string =>
  host === '::' ? '[::1]' : anyAddress.has(host) ? '127.0.0.1' : bracketed(host);
