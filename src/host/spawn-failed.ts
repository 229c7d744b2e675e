/**
 * What the caller of an eager `spawn` is told when the server did not become ready. Its supervisor says what will happen next
 * ("parked, tried again in 60 s"), which is not so: the server has been removed again.
 */
import type { ServerDefinition } from '../config/server-definition.js';
import { type ErrorCode, HostError, type HostErrorOptions, isHostError } from '../kernel/errors.js';

/** Refusals that speak of a server that is kept. */
const refusals: ReadonlySet<ErrorCode> = new Set(['server_parked', 'server_ejected', 'reconnecting', 'needs_reauth']);

/** `hadEarlier`: the server that it was to replace is there again. */
export function spawnFailed(error: unknown, { name }: ServerDefinition, hadEarlier: boolean): unknown {
  if (!isHostError(error) || !refusals.has(error.code)) return error;
  const after = hadEarlier ? 'the server that had the name is back' : 'it is not registered';
  const told = (why: string) => `server '${name}' could not be started; ${after} (${why})`;
  const options = (hint: string): HostErrorOptions => ({
    server: name,
    phase: 'queued',
    execution: 'not_executed',
    hint: `${hint}; then spawn server '${name}' again`,
    cause: error,
  });
  const failure = error.cause;
  if (isHostError(failure)) {
    const { code, message, hint = 'mend what made it fail' } = failure;
    return new HostError(code, told(message), { ...failure.details, ...options(hint) });
  }
  // No start has failed yet: it was still under way when its time was over.
  const hint = 'look at its stderr; if it is only slow, allow it more time to start';
  return new HostError('timeout', told('it did not become ready in time'), {
    ...options(hint),
    reason: 'start_timeout',
  });
}
