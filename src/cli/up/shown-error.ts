/** Errors of a host in the process of one command (local-host.ts), for `call` and `tools`. */
import { type HostError, isHostError } from '../../kernel/errors.js';

/** Shows the cause, without the next try: this host ends now and does not try a parked server again. No later command can read its log. */
export function shownError(error: HostError): HostError {
  if (error.code !== 'server_parked' || !isHostError(error.cause)) return error;
  const { code, message, hint } = error.cause;
  // The hint of a server that exited names a log that ends with this command.
  const own = 'fix the cause and repeat the command; for the whole stderr of the server: hostler up, then hostler logs';
  return error.with({ message, hint: code === 'transport' ? own : (hint ?? own) });
}
