/** Exit codes of all commands, and the exit code of each error. */
import type { ErrorCode, HostError } from '../kernel/errors.js';

export const EXIT = {
  done: 0,
  failed: 1,
  usage: 2,
  refused: 3,
  unavailable: 4,
} as const;

const refused: readonly ErrorCode[] = [
  'denied',
  'budget_exceeded',
  'schema_changed',
  'tool_throttled',
  'unauthenticated',
];
const unavailable: readonly ErrorCode[] = [
  ...(['server_stopped', 'server_disabled', 'server_parked', 'server_ejected'] as const),
  ...(['circuit_open', 'reconnecting', 'needs_reauth', 'overloaded'] as const),
];

export function exitCodeOf({ code, details }: HostError): number {
  if (refused.includes(code)) return EXIT.refused;
  if (unavailable.includes(code)) return EXIT.unavailable;
  // An unusable file or folder is not a usage error.
  const isUsage = code === 'invalid_spec' && (details.reason === undefined || details.reason === 'usage');
  return isUsage ? EXIT.usage : EXIT.failed;
}
