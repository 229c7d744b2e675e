/**
 * The error of an invalid configuration.
 * Invariant: does not load zod (schema-issues.ts), because relays and workers use this file.
 */
import { HostError } from '../kernel/errors.js';

/** `field`: path of the mistake; empty for the whole configuration. */
export const invalidSpec = (
  field: string,
  what: string,
  hint = 'correct the configuration and try again',
  more: { readonly reason?: string; readonly cause?: unknown } = {},
): HostError =>
  new HostError('invalid_spec', field === '' ? what : `${field}: ${what}`, {
    field,
    execution: 'not_executed',
    hint,
    ...more,
  });
