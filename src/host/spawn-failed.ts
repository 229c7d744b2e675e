/**
 * The error of an eager `spawn` or `attach` when the server did not become ready. The supervisor's own error says what will happen next
 * ("parked, tried again in 60 s"), which is wrong here: the server has been removed again.
 */
import type { ServerDefinition } from '../config/server-definition.js';
import { isAttached, isOneShot } from '../config/server-spec.js';
import { type ErrorCode, HostError, type HostErrorOptions, isHostError } from '../kernel/errors.js';

/** Errors that announce what a registered server will do next. */
const refusals: ReadonlySet<ErrorCode> = new Set(['server_parked', 'server_ejected', 'reconnecting', 'needs_reauth']);

/** `earlier`: the server that it should have replaced, which is registered again. */
export function spawnFailed(
  error: unknown,
  { name, spec }: ServerDefinition,
  earlier: ServerDefinition | undefined,
): unknown {
  if (!isHostError(error)) return error;
  // A one-shot server is stopped by its first failure, and names it; one that was stopped on purpose has none.
  const isFailure = error.code === 'server_stopped' && isOneShot(spec) && isHostError(error.cause);
  if (!isFailure && !refusals.has(error.code)) return error;
  const verb = isAttached(spec) ? 'attach' : 'spawn';
  const after = afterOf(earlier);
  const message = (why: string) => `server '${name}' could not be started; ${after} (${why})`;
  const options = (hint: string): HostErrorOptions => ({
    server: name,
    phase: 'queued',
    execution: 'not_executed',
    hint: `${hint}; then ${verb} server '${name}' again`,
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

function afterOf(earlier: ServerDefinition | undefined): string {
  if (!earlier) return 'it is not registered';
  return isOneShot(earlier.spec)
    ? 'the server that had the name is back, stopped: it was attached without a factory'
    : 'the server that had the name is back';
}
