/**
 * What undici and the system say about a broken exchange → HostError.
 * The text of the system stays in `cause`; `reason` is its code. Whether bytes had left decides everything else.
 */
import { HostError, isHostError } from '../../kernel/errors.js';

const HINTS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'nothing listens at this address: check that the server is running and that the port is right',
  ENOTFOUND: 'the host name does not resolve: check the URL and the DNS of this machine',
  EAI_AGAIN: 'the name server did not answer: check the DNS of this machine',
  UND_ERR_CONNECT_TIMEOUT: 'the address does not answer: check the URL and any firewall between',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'the certificate is self-signed: trust it explicitly or use another',
  SELF_SIGNED_CERT_IN_CHAIN:
    'the certificate chain is not trusted by this machine: install the authority that signed it',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    'the certificate chain is not trusted by this machine: install the authority that signed it',
  CERT_HAS_EXPIRED: 'the certificate of the server has expired: renew it',
  ERR_TLS_CERT_ALTNAME_INVALID: 'the certificate of the server is for another name: check the host in the URL',
};

export function networkError(error: Error, server: string, written: boolean): HostError {
  if (isHostError(error)) return error;
  const code = (error as NodeJS.ErrnoException).code;
  const reason = typeof code === 'string' ? code : 'socket';
  const hint = HINTS[reason];
  if (!written) {
    return new HostError('connect_failed', `server '${server}': no connection could be opened (${reason})`, {
      server,
      reason,
      phase: 'queued',
      execution: 'not_executed',
      cause: error,
      ...(hint === undefined ? {} : { hint }),
    });
  }
  return new HostError(
    'transport',
    `server '${server}': the connection broke before the answer was complete (${reason})`,
    {
      server,
      reason,
      phase: 'writing',
      execution: 'uncertain',
      cause: error,
    },
  );
}
