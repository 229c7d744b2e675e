/**
 * Routes upstream HTTP through the proxy of the environment: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, except for the hosts of
 * `NO_PROXY`. `https` goes through a CONNECT tunnel, `http` as requests for absolute URLs. `SSL_CERT_FILE` adds authorities.
 * Invariants: loopback never uses a proxy. User name and password of a proxy are sent to the proxy only, and no error contains
 * them.
 */
import { readFileSync } from 'node:fs';
import type { Duplex } from 'node:stream';
import type { SecureContext } from 'node:tls';
import { HostError } from '../../kernel/errors.js';
import type { Environment } from '../environment.js';
import type { Dial } from './dial-guard.js';

const loopback = /^(?:localhost|.+\.localhost|127(?:\.\d{1,3}){3}|\[::1\])$/i;
const tunnelTimeoutMs = 10_000;

/** The proxy for a URL; undefined: none. Throws if the variable is not the address of an HTTP proxy. */
export function proxyOf({ protocol, hostname, port }: URL, env: Environment): URL | undefined {
  const secure = protocol === 'https:';
  const names = [secure ? 'HTTPS_PROXY' : 'HTTP_PROXY', 'ALL_PROXY'];
  const value = names.map((each) => env[each.toLowerCase()] || env[each]).find(Boolean);
  if (!value || loopback.test(hostname)) return undefined;
  if (isExcluded(hostname, port || (secure ? '443' : '80'), env.no_proxy || env.NO_PROXY || '')) return undefined;
  const text = /^[a-z][a-z0-9+.-]*:\/\//i.test(value) ? value : `http://${value}`;
  const proxy = URL.canParse(text) ? new URL(text) : undefined;
  if (proxy && (proxy.protocol === 'http:' || proxy.protocol === 'https:')) return proxy;
  throw new HostError('connect_failed', `the proxy in ${names.join(' or ')} is not an http:// or https:// address`, {
    ...{ reason: 'proxy', phase: 'queued', execution: 'not_executed' },
    hint: 'correct the variable, or name the host in NO_PROXY',
  });
}

/** Entries are hosts with all their subdomains, also as `.host`, `*.host` and `host:port`; `*` is every host. */
function isExcluded(hostname: string, port: string, list: string): boolean {
  const host = hostname.toLowerCase();
  return list
    .toLowerCase()
    .split(/[\s,]+/)
    .some((entry) => {
      const [, name = '', ofPort = port] = /^(\[[^\]]*\]|[^:]*)(?::(\d+))?$/.exec(entry) ?? [];
      const suffix = name.replace(/^\*?\./, '');
      return name === '*' || (suffix !== '' && ofPort === port && (host === suffix || host.endsWith(`.${suffix}`)));
    });
}

export function proxyHeaders({ username, password }: URL): string[] {
  if (username === '' && password === '') return [];
  const pair = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return ['proxy-authorization', `Basic ${Buffer.from(pair).toString('base64')}`];
}

/** Opens TLS through a tunnel. `secure` gets the tunnel as its socket. */
export function tunnelled(proxy: URL, secure: Dial, context: SecureContext | undefined): Dial {
  const { protocol, hostname, port } = proxy;
  // Loaded here, because most hosts have no proxy.
  const { request } = process.getBuiltinModule(protocol === 'https:' ? 'node:https' : 'node:http');
  const [, authorization] = proxyHeaders(proxy);
  return (target, done) => {
    const address = `${target.hostname}:${target.port || 443}`;
    const tunnel = request({
      ...{
        host: hostname.replace(/^\[|\]$/g, ''),
        port: port || (protocol === 'https:' ? 443 : 80),
        method: 'CONNECT',
      },
      ...{ path: address, timeout: tunnelTimeoutMs, agent: false },
      headers: { host: address, ...(authorization === undefined ? {} : { 'proxy-authorization': authorization }) },
      ...(context === undefined ? {} : { secureContext: context }),
    });
    tunnel.once('connect', ({ statusCode }, socket: Duplex) => {
      if (statusCode === 200) return secure({ ...target, httpSocket: socket as never }, done);
      socket.destroy();
      done(refused(statusCode), null);
    });
    tunnel.once('response', (response) => {
      response.destroy();
      done(refused(response.statusCode), null);
    });
    tunnel.once('timeout', () =>
      tunnel.destroy(Object.assign(new Error('the proxy is silent'), { code: 'ETIMEDOUT' })),
    );
    tunnel.once('error', (error) => done(error, null));
    tunnel.end();
  };
}

const refused = (httpStatus = 0): HostError =>
  new HostError('connect_failed', `the proxy refused the connection with status ${httpStatus}`, {
    ...{ reason: 'proxy', phase: 'queued', execution: 'not_executed', httpStatus },
    hint: httpStatus === 407 ? 'put user name and password into the address of the proxy' : 'name the host in NO_PROXY',
  });

let trusted: { readonly file: string; readonly context: SecureContext | undefined } | undefined;

/**
 * Authorities of Node, of NODE_EXTRA_CA_CERTS and of SSL_CERT_FILE. Undefined: SSL_CERT_FILE adds none, so Node's default applies.
 */
export function trustedAuthorities({
  SSL_CERT_FILE: file,
  NODE_EXTRA_CA_CERTS: extra,
}: Environment): SecureContext | undefined {
  if (!file) return undefined;
  if (trusted?.file !== file) {
    const { createSecureContext, rootCertificates } = process.getBuiltinModule('node:tls');
    const own = textOf(file);
    const ca = [...rootCertificates, ...(extra ? [textOf(extra) ?? ''] : []), own ?? ''].filter((text) => text !== '');
    trusted = { file, context: own === undefined ? undefined : createSecureContext({ ca }) };
  }
  return trusted.context;
}

/** A file that cannot be read adds nothing, as in OpenSSL and Node. */
function textOf(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}
