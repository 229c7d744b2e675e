/** Why a worker cannot connect, each with the next step. No error quotes the answer of the server. */
import { HostError } from '../../kernel/errors.js';
import { brokerPath } from './listen-path.js';

interface Facts {
  readonly httpStatus?: number;
  readonly cause?: unknown;
}

const failed = (url: URL, what: string, reason: string, hint: string, facts: Facts = {}): HostError =>
  new HostError('connect_failed', `the broker at ${url.host} ${what}`, {
    ...{ reason, execution: 'not_executed', hint },
    ...facts,
  });

/** The server answered the upgrade with a status. */
export function statusError(url: URL, httpStatus: number): HostError {
  const facts = { httpStatus };
  const reason = `http_${httpStatus}`;
  switch (httpStatus) {
    case 401:
    case 407:
      return failed(
        ...([url, 'is behind a proxy that wants credentials', reason] as const),
        'let the proxy pass the path /broker: the key of the worker is checked by the broker itself',
        facts,
      );
    case 403:
      return failed(
        ...([url, `does not accept the name '${url.hostname}'`, reason] as const),
        `add ${url.hostname} to broker.listen.allowedHosts in the configuration of the host`,
        facts,
      );
    case 404: {
      const hint = `use the address ${url.protocol}//${url.host}${brokerPath}`;
      return failed(url, `has nothing at the path ${url.pathname}`, reason, hint, facts);
    }
    case 503:
      return new HostError('overloaded', `the broker at ${url.host} has too many connections`, {
        ...{ reason, execution: 'not_executed', httpStatus },
        hint: 'raise broker.limits.connections in the configuration of the host',
      });
    default:
      return failed(
        ...([url, `answered with HTTP ${httpStatus} instead of a WebSocket`, reason] as const),
        'use the address that hostler up prints for workers',
        facts,
      );
  }
}

/** Codes of Node and OpenSSL. */
const certificateCodes = /CERT|SELF_SIGNED|VERIFY_LEAF/;
const notTlsCodes = /^(?:EPROTO|ERR_SSL_WRONG_VERSION_NUMBER|ERR_SSL_PACKET_LENGTH_TOO_LONG)$/;

/** There was no answer: the name, the network, TLS. */
export function networkError(url: URL, cause: Error & { code?: string }): HostError {
  const { code = 'handshake' } = cause;
  const fail = (what: string, hint: string) => failed(url, what, code, hint, { cause });
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID')
    return fail(
      `has a certificate for other names than '${url.hostname}' (${code})`,
      'use a name of the certificate, or make a certificate for this name',
    );
  if (certificateCodes.test(code))
    return fail(
      `has a certificate that this machine does not trust (${code})`,
      'name the file of the authority that signed it in NODE_EXTRA_CA_CERTS',
    );
  if (notTlsCodes.test(code))
    return fail(`does not speak TLS (${code})`, 'set broker.listen.tls on the host, or use ws:// on one machine');
  switch (code) {
    case 'ECONNREFUSED':
      return fail(
        'refused the connection: nothing listens there',
        'start hostler up with broker in its configuration, and see that the port is the one it prints',
      );
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return fail('has a name that cannot be resolved', 'see that the name is written correctly and known to DNS');
    case 'ECONNRESET':
    case 'EPIPE':
      return fail(
        'ended the connection before it answered',
        url.protocol === 'ws:' ? 'if it serves TLS, use wss://' : 'see that the address is the one of the broker',
      );
    default:
      return fail(`cannot be reached (${code})`, 'see that it runs, and that no firewall is in between');
  }
}

export const timeoutError = (url: URL): HostError =>
  failed(url, 'did not answer in time', 'timeout', 'see that it runs, and that no firewall is in between');

export const cancelledConnect = (): HostError =>
  new HostError('cancelled', 'the connection to the broker is not wanted any more', { execution: 'not_executed' });
