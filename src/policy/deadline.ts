/**
 * Checks a deadline that a caller gives, which may be untyped, before it is added to a time.
 */
import { HostError } from '../kernel/errors.js';

/** Throws unless it is a number; `Infinity` is one. A deadline that has passed is reported as a timeout by the stage that waits. */
export function waitMs(deadlineMs: number | undefined, defaultMs: number): number {
  const ms: unknown = deadlineMs ?? defaultMs;
  if (typeof ms === 'number' && !Number.isNaN(ms)) return ms;
  throw new HostError('invalid_request', 'deadlineMs is not a number', {
    field: 'deadlineMs',
    phase: 'queued',
    execution: 'not_executed',
    hint: `give the milliseconds it may take, or leave it out for ${defaultMs / 1_000} s`,
  });
}
