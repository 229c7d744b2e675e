/**
 * What follows when a server refused a call for its token: the token is renewed, once for everybody, and the call may be
 * sent once more; or the caller is told to log in, and the server waits for that.
 * Not here: the renewal itself (session/auth-recovery.ts), sending (dispatch.ts).
 */
import { HostError, type HostErrorOptions } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import type { Call } from '../policy/operation.js';
import type { Session } from '../session/session.js';
import type { Acquired } from '../supervisor/supervisor.js';
import type { TokenRefused } from '../transports/http/auth-token.js';
import type { CallTarget } from './call-target.js';

/** Undefined: send the call once more. Otherwise what its caller is told. */
export async function reauthorize(
  server: Pick<CallTarget, 'auth' | 'forgetCircuit' | 'supervisor'>,
  acquired: Acquired<Session>,
  call: Call,
  refused: TokenRefused,
): Promise<HostError | undefined> {
  const outcome = (await server.auth?.recover(refused, call)) ?? 'refused';
  if (outcome === 'late') return ended(call, 'timeout', 'its deadline passed');
  if (outcome === 'cancelled') return ended(call, 'cancelled', 'the caller cancelled it');
  if (outcome === 'refused') return unauthorized(server, acquired, refused);
  // A server that answers is reachable, whatever becomes of the call.
  server.forgetCircuit();
  return undefined;
}

/** Nothing more is tried: from now on calls are refused before they are sent, until there is another token. */
export function unauthorized(
  server: Pick<CallTarget, 'supervisor'>,
  { connection, run }: Acquired<Session>,
  refused: TokenRefused,
): HostError {
  // Calls that the server let in before are not cut off; the last one that it refuses closes the door. And a token that is
  // not good enough for one tool may do for the others.
  if (refused.kind === 'token' && connection.owed === 0) server.supervisor.lost(run, refused);
  return refused;
}

function ended({ server, tool }: Call, code: 'timeout' | 'cancelled', why: string): HostError {
  const details: HostErrorOptions = { server, tool, reason: 'reauth', phase: 'queued', execution: 'not_executed' };
  const shown = (text: string) => neutraliseLine(text, LIMITS.quotedChars);
  const what = `${shown(`${server}/${tool}`)}: ${why}`;
  return new HostError(code, `${what} while the authorization of server '${shown(server)}' was renewed`, {
    ...details,
    hint: 'the server had refused the call, so it did not run and can be sent again',
  });
}
