/**
 * Handles an operation whose token the server refused: the operation is sent again with a renewed token, or fails.
 * Not here: the renewal itself, which all callers share (session/auth/auth-recovery.ts).
 */
import { HostError, type HostErrorOptions } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { displayName, namesOf, type Operation } from '../policy/operation.js';
import type { Session } from '../session/session.js';
import type { Acquired } from '../supervisor/supervisor.js';
import type { TokenRefused } from '../transports/http/auth-token.js';
import type { CallTarget } from './managed-server.js';

/** Renews a refused token, once for all callers. Returns undefined if the operation can be sent again, otherwise its error. */
export async function reauthorize(
  server: Pick<CallTarget, 'auth' | 'forgetCircuit' | 'supervisor'>,
  acquired: Acquired<Session>,
  call: Operation,
  refused: TokenRefused,
): Promise<HostError | undefined> {
  const outcome = (await server.auth?.recover(refused, call)) ?? 'refused';
  if (outcome === 'late') return notRenewed(call, 'timeout', 'its deadline passed');
  if (outcome === 'cancelled') return notRenewed(call, 'cancelled', 'the caller cancelled it');
  if (outcome === 'refused') return unauthorized(server, acquired, refused);
  if (typeof outcome !== 'string') return outcome;
  // The refusal of a token proves that the server is reachable, so earlier strikes no longer count.
  server.forgetCircuit();
  return undefined;
}

/** Returns the error of the operation. Later calls are refused before they are sent, until another token exists. */
export function unauthorized(
  server: Pick<CallTarget, 'auth' | 'supervisor'>,
  { connection, run }: Acquired<Session>,
  refused: TokenRefused,
): HostError {
  const error = server.auth?.explain(refused) ?? refused;
  // The last open call ends the connection, so calls that the server accepted are not cut off. A token without the scope of one
  // tool may suffice for other tools.
  if (refused.kind === 'token' && connection.unanswered === 0) server.supervisor.lost(run, error);
  return error;
}

function notRenewed(call: Operation, code: 'timeout' | 'cancelled', why: string): HostError {
  const details: HostErrorOptions = { ...namesOf(call), reason: 'reauth', phase: 'queued', execution: 'not_executed' };
  return new HostError(
    code,
    `${displayName(call)}: ${why} while the authorization of server '${neutraliseLine(call.server, LIMITS.quotedChars)}' was renewed`,
    { ...details, hint: 'the server had refused the call, so it did not run and can be sent again' },
  );
}
