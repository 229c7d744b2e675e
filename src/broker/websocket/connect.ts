/** The errors of a worker that cannot connect to a broker. */
import { type HostError, type HostErrorOptions, notExecuted } from '../../kernel/errors.js';
import { refusedKey } from './close-reasons.js';
import { brokerPath, keyChallenge } from './limits.js';

const printedAddress = 'use the address that hostler up prints for workers';

const failed = (url: URL, what: string, hint: string, facts: HostErrorOptions): HostError =>
  notExecuted('connect_failed', `the broker at ${url.host} ${what}`, hint, facts);

/** The server answered the upgrade with a status. `challenge`: its `WWW-Authenticate`. */
export function statusError(url: URL, httpStatus: number, challenge: string | undefined): HostError {
  if (httpStatus === 401 && challenge === keyChallenge)
    return refusedKey('the broker refused the key of this worker', 'unauthenticated');
  const { host, hostname, protocol, pathname } = url;
  const fail = (what: string, hint: string) => failed(url, what, hint, { httpStatus, reason: `http_${httpStatus}` });
  const passKeys = `let the proxy pass ${brokerPath}: the broker checks keys itself`;
  const moreConnections = 'give each worker a key of its own, or raise broker.limits.connections on the host';
  const allowName = `add ${hostname} to broker.listen.allowedHosts on the host`;
  switch (httpStatus) {
    case 401:
    case 407:
      return fail('is behind a proxy that requires credentials', passKeys);
    case 403:
      return fail(`does not accept the name '${hostname}'`, allowName);
    case 404:
      return fail(`has nothing at the path ${pathname}`, `use the address ${protocol}//${host}${brokerPath}`);
    case 503:
      return fail('has too many connections', moreConnections).with({ code: 'overloaded' });
    default:
      return fail(`answered with HTTP ${httpStatus} instead of a WebSocket`, printedAddress);
  }
}

/** Codes of Node and OpenSSL. The first row that matches is used. */
const networkErrors: readonly (readonly [RegExp, what: string, hint: string])[] = [
  [/ALTNAME/, 'has a certificate for other names', 'use a name of the certificate, or make one for this name'],
  [
    /CERT|SELF_SIGNED|VERIFY_LEAF/,
    'has a certificate that this machine does not trust',
    'name the file of the authority that signed it in NODE_EXTRA_CA_CERTS',
  ],
  [/^EPROTO$|^ERR_SSL_/, 'does not speak TLS', 'set broker.listen.tls on the host, or use ws:// on one machine'],
  [
    /ECONNREFUSED/,
    'refused the connection: nothing listens there',
    'start hostler up with broker in its configuration, and see that the port is the one it prints',
  ],
  [/ENOTFOUND|EAI_AGAIN/, 'has a name that cannot be resolved', 'see that the name is correct and known to DNS'],
  [/ECONNRESET|EPIPE/, 'ended the connection before it answered', 'if it serves TLS, use wss://'],
  [/^/, 'cannot be reached', 'see that it runs, and that no firewall is in between'],
];

/** The error if no answer came, because of the name, the network or TLS. */
export function networkError(url: URL, cause: Error & { code?: string }): HostError {
  const { code: reason = 'handshake' } = cause;
  const [, what = '', hint = ''] = networkErrors.find(([pattern]) => pattern.test(reason)) ?? [];
  return failed(url, `${what} (${reason})`, hint, { reason, cause });
}

export const timeoutError = (url: URL): HostError =>
  failed(url, 'did not answer in time', 'see that it runs, and that no firewall is in between', { reason: 'timeout' });

export const cancelledConnect = (): HostError =>
  notExecuted('cancelled', 'the connection to the broker is no longer needed');
