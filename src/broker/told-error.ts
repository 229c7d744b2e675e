/**
 * An error as the other side wrote it (HostError.toJSON), read again: in a reply (messages.ts) or in a frame of the broker
 * (embedded/broker-frames.ts).
 *
 * Invariants: of its members only those are taken over that we know, each of its own kind; its texts are neutralised; a code
 * that nobody here knows is a `protocol_error`.
 */
import { ERRORS, type ErrorCode, HostError, type HostErrorOptions } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';

const textFacts = [
  ...(['server', 'tool', 'requestId', 'reason', 'phase', 'execution', 'field', 'role', 'oldHash', 'newHash'] as const),
  'signal',
] as const;
const numberFacts = ['retryAfterMs', 'limit', 'actual', 'exitCode', 'httpStatus', 'rpcCode'] as const;

/** `bytes` are one JSON object, as whoever found them has checked. */
export function readToldError(bytes: Buffer): HostError {
  const { code, message, hint, ...rest } = JSON.parse(bytes.toString('utf8')) as Record<string, unknown>;
  const known: ErrorCode =
    typeof code === 'string' && Object.hasOwn(ERRORS, code) ? (code as ErrorCode) : 'protocol_error';
  const facts: Record<string, unknown> = {};
  for (const key of textFacts) if (typeof rest[key] === 'string') facts[key] = line(rest[key]);
  for (const key of numberFacts) if (Number.isFinite(rest[key])) facts[key] = rest[key];
  if (rest.execution !== 'not_executed' && rest.execution !== 'uncertain') delete facts.execution;
  if (typeof hint === 'string') facts.hint = line(hint);
  return new HostError(known, typeof message === 'string' ? line(message) : known, facts as HostErrorOptions);
}

const line = (said: string): string => neutraliseLine(said, LIMITS.quotedChars);
