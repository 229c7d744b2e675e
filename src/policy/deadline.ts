/**
 * How long somebody is ready to wait, as they say it: checked before it is added to a time and compared with others, where
 * text would be pasted and what is no number would never be over.
 */
import { HostError } from '../kernel/errors.js';

/** Throws unless it is a number; `Infinity` is one. What is past already is told as a timeout by whoever waits. */
export function waitMs(deadlineMs: number | undefined, otherwiseMs: number): number {
  const ms: unknown = deadlineMs ?? otherwiseMs;
  if (typeof ms === 'number' && !Number.isNaN(ms)) return ms;
  throw new HostError('invalid_request', 'deadlineMs is not a number', {
    field: 'deadlineMs',
    phase: 'queued',
    execution: 'not_executed',
    hint: `give the milliseconds it may take, or leave it out for ${otherwiseMs / 1_000} s`,
  });
}
