/**
 * The error of an eager `spawn` when the server did not become ready. The supervisor's own error says what will happen next
 * ("parked, tried again in 60 s"), which is wrong here: the server has been removed again.
 */
import type { ServerDefinition } from '../config/server-definition.js';
import { type ErrorCode, HostError, type HostErrorOptions, isHostError } from '../kernel/errors.js';

/** Errors that announce what a registered server will do next. */
const refusals: ReadonlySet<ErrorCode> = new Set(['server_parked', 'server_ejected', 'reconnecting', 'needs_reauth']);

/** `hadEarlier`: the server that it should have replaced is registered again. */
export function spawnFailed(error: unknown, { name }: ServerDefinition, hadEarlier: boolean): unknown {
  if (!isHostError(error) || !refusals.has(error.code)) return error;
  const after = hadEarlier ? 'the server that had the name is back' : 'it is not registered';
  const message = (why: string) => `server '${name}' could not be started; ${after} (${why})`;
  const options = (hint: string): HostErrorOptions => ({
    server: name,
    phase: 'queued',
    execution: 'not_executed',
    hint: `${hint}; then spawn server '${name}' again`,
    cause: error,
  });
  const failure = error.cause;
  if (isHostError(failure)) {
    const { code, hint = 'fix the cause' } = failure;
    return new HostError(code, message(failure.message), { ...failure.details, ...options(hint) });
  }
  // No start has failed yet: the first was still under way when the time to start was over.
  const hint = 'look at its stderr; if it is only slow, allow it more time to start';
  return new HostError('timeout', message('it did not become ready in time'), {
    ...options(hint),
    reason: 'start_timeout',
  });
}
