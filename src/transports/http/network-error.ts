/**
 * What undici and the system say about a broken exchange → HostError.
 * The text of the system stays in `cause`; `reason` is its code. Whether bytes had left decides everything else.
 */
import { HostError, isHostError } from '../../kernel/errors.js';

const HINTS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'Nothing listens at this address: is the server running, and is the port right?',
  ENOTFOUND: 'The host name does not resolve: check the URL and the DNS of this machine.',
  EAI_AGAIN: 'The name server did not answer: check the DNS of this machine.',
  UND_ERR_CONNECT_TIMEOUT: 'The address does not answer: check the URL and any firewall between.',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'The certificate is self-signed: trust it explicitly or use another.',
  SELF_SIGNED_CERT_IN_CHAIN: 'The certificate chain is not trusted by this machine.',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'The certificate chain is not trusted by this machine.',
  CERT_HAS_EXPIRED: 'The certificate of the server has expired.',
  ERR_TLS_CERT_ALTNAME_INVALID: 'The certificate of the server is for another name.',
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
