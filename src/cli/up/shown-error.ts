/** Errors of a host in the process of one command (local-host.ts), for `call` and `tools`. */
import { type HostError, isHostError } from '../../kernel/errors.js';

/** This host ends now: it does not try a parked server again, and no command can read its log. */
export function shownError(error: HostError): HostError {
  if (error.code !== 'server_parked' || !isHostError(error.cause)) return error;
  const { code, message, hint } = error.cause;
  // The hint for a process that ended names its log.
  const own = 'fix the cause and repeat the command; for the rest of its stderr: hostler up, then hostler logs';
  return error.with({ message, hint: code === 'transport' ? own : (hint ?? own) });
}
