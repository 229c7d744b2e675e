/**
 * Checks `Host` and `Origin` of a request, against web pages that reach a local port by DNS rebinding or from another site.
 * Invariant: a name must match an allowed name exactly, except for case. No setting turns the check off.
 */

/** Names of this machine in a browser, allowed at any port. */
const LOOPBACK = new Set(['localhost', '127.0.0.1', '[::1]']);

/** Name or address with an optional port; no user, path or empty port. */
const hostText = /^([a-z0-9._-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::([0-9]{1,5}))?$/;
const originText = /^https?:\/\/(.+)$/;

interface HostName {
  readonly name: string;
  readonly port: string | undefined;
}

function parseHost(text: string): HostName | undefined {
  const match = hostText.exec(text.toLowerCase());
  if (!match || (match[2] !== undefined && Number(match[2]) > 65_535)) return undefined;
  return { name: match[1] as string, port: match[2] };
}

interface OriginRules {
  /** Allowed hosts in addition to this machine. An entry with a port allows only that port. */
  readonly hosts: readonly string[];
  /** Origins of web pages that may send cross-origin requests, as browsers write them. */
  readonly origins: readonly string[];
}

export type OriginGuard = (host: string | undefined, origin: string | undefined) => boolean;

export function originGuard({ hosts, origins }: OriginRules): OriginGuard {
  const allowedHosts = new Set(hosts.map((host) => host.toLowerCase()));
  const allowedOrigins = new Set(origins.map((origin) => origin.toLowerCase()));
  const isAllowed = ({ name, port }: HostName): boolean =>
    LOOPBACK.has(name) || allowedHosts.has(name) || (port !== undefined && allowedHosts.has(`${name}:${port}`));
  const isSame = (one: HostName, other: HostName): boolean =>
    one.name === other.name || (LOOPBACK.has(one.name) && LOOPBACK.has(other.name));

  /** Cache: nearly every client sends the same Host each time, and no Origin. */
  let lastAllowed: string | undefined;
  return (host, origin) => {
    if (origin === undefined && host !== undefined && host === lastAllowed) return true;
    const ours = host === undefined ? undefined : parseHost(host);
    if (!ours || !isAllowed(ours)) return false;
    if (origin === undefined) {
      lastAllowed = host;
      return true;
    }
    const lower = origin.toLowerCase();
    if (allowedOrigins.has(lower)) return true;
    const theirs = parseHost(originText.exec(lower)?.[1] ?? '');
    return theirs !== undefined && isSame(ours, theirs) && isAllowed(theirs);
  };
}
