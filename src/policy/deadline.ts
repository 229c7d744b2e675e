/** Validates `deadlineMs` of a caller before it is used in arithmetic; JavaScript callers may pass any type. */
import { HostError } from '../kernel/errors.js';

/** Throws unless it is a number; `Infinity` is valid. The stage that waits reports a passed deadline as a timeout. */
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
