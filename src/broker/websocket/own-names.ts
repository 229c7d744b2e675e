/**
 * Which names in the URL of a worker mean this broker: loopback names, the addresses and the name of this machine, the names of the TLS
 * certificate, and `broker.listen.allowedHosts`. All others are refused, because a web page may have sent them (DNS rebinding).
 */
import { X509Certificate } from 'node:crypto';
import { hostname, networkInterfaces } from 'node:os';
import { isLoopback } from '../../config/values.js';
import { bracketed } from '../../transports/http/host-name.js';
import { type OriginGuard, originGuard } from '../../transports/http/origin-guard.js';

export interface OwnNamesOptions {
  readonly host: string;
  readonly cert: Buffer | undefined;
  readonly allowedHosts: readonly string[];
  readonly allowedOrigins: readonly string[];
}

export function ownNames({ host, cert, allowedHosts, allowedOrigins }: OwnNamesOptions): OriginGuard {
  const certified = cert ? certificateNames(cert) : [];
  const fixed = [bracketed(host), ...certified, ...allowedHosts];
  return (given, origin) => {
    const name = given?.toLowerCase().replace(/:\d+$/, '') ?? '';
    // A wildcard of the certificate stands for one label.
    const isCovered = name.indexOf('.') > 0 && certified.includes(`*${name.slice(name.indexOf('.'))}`);
    // Read anew: the addresses of a machine change.
    const current = isLoopback(host) ? [] : machineNames();
    return originGuard({ hosts: [...fixed, ...current, ...(isCovered ? [name] : [])], origins: allowedOrigins })(
      given,
      origin,
    );
  };
}

function machineNames(): string[] {
  const addresses = Object.values(networkInterfaces()).flatMap((each) => each?.map(({ address }) => address) ?? []);
  const own = hostname().toLowerCase();
  return [own, own.replace(/\..*$/, ''), ...addresses.map(bracketed)];
}

/** The subject alternative names, or the common name if there are none, as in Node's own check. */
export function certificateNames(cert: Buffer): string[] {
  const { subjectAltName, subject } = new X509Certificate(cert);
  const names = (subjectAltName ?? '').split(', ').flatMap((entry) => {
    const [, kind, value] = /^(DNS|IP Address):([^",]+)$/.exec(entry) ?? [];
    if (value === undefined) return [];
    return [kind === 'DNS' ? value.toLowerCase() : bracketed(value)];
  });
  if (names.length > 0) return names;
  const [, common] = /^CN=(.+)$/m.exec(subject ?? '') ?? [];
  return common === undefined ? [] : [common.toLowerCase()];
}
