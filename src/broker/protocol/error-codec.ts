/**
 * Reads an error that the other side wrote with `HostError.toJSON`.
 * Invariants: only known members of the right type are taken over; texts are neutralised; an unknown code becomes `protocol_error`.
 */
import { ERRORS, type ErrorCode, HostError, type HostErrorOptions } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';

const textMembers = [
  ...(['server', 'tool', 'requestId', 'reason', 'phase', 'execution', 'field', 'role', 'oldHash', 'newHash'] as const),
  'signal',
] as const;
const numberMembers = ['retryAfterMs', 'limit', 'actual', 'exitCode', 'httpStatus', 'rpcCode'] as const;

/** `bytes` is one JSON object. */
export function readError(bytes: Buffer): HostError {
  const { code, message, hint, ...rest } = JSON.parse(bytes.toString('utf8')) as Record<string, unknown>;
  const known: ErrorCode =
    typeof code === 'string' && Object.hasOwn(ERRORS, code) ? (code as ErrorCode) : 'protocol_error';
  const details: Record<string, unknown> = {};
  for (const key of textMembers) if (typeof rest[key] === 'string') details[key] = line(rest[key]);
  for (const key of numberMembers) if (Number.isFinite(rest[key])) details[key] = rest[key];
  if (rest.execution !== 'not_executed' && rest.execution !== 'uncertain') delete details.execution;
  if (typeof hint === 'string') details.hint = line(hint);
  return new HostError(known, typeof message === 'string' ? line(message) : known, details as HostErrorOptions);
}

const line = (text: string): string => neutraliseLine(text, LIMITS.quotedChars);
