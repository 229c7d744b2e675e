/**
 * Converts failures of an attached object to HostErrors. Errors of an SDK transport are recognised by shape: an HTTP status in
 * `code` (SDK 1) or `status` (SDK 2), and `UnauthorizedError` by name.
 */
import { formatDuration } from '../../kernel/duration.js';
import { type ErrorCode, HostError, type HostErrorOptions, thrownText } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import { statusError } from '../http/http-errors.js';

export interface ErrorContext {
  readonly server: string;
  readonly cleanText: (text: string) => string;
  readonly now: () => Date;
}

function failed(
  { server, cleanText }: ErrorContext,
  code: ErrorCode,
  what: string,
  cause: unknown,
  options: HostErrorOptions,
): HostError {
  const text = cleanText(thrownText(cause).slice(0, LIMITS.quotedChars));
  return new HostError(code, `${what}: ${text}`, { server, ...options, cause });
}

/** `send` of the transport threw or rejected. Without an HTTP status it is unknown whether the message was sent. */
export function sendFailed(context: ErrorContext, error: unknown): HostError {
  const { server } = context;
  const status = statusOf(error);
  if (status !== undefined) {
    const now = context.now();
    const facts = { server, status, headers: {}, inSession: false, rpcCode: undefined, now, sent: undefined };
    return statusError(facts).with({ cause: error });
  }
  const options = { reason: 'send_failed', execution: 'uncertain' } as const;
  return failed(context, 'transport', `server '${server}': its transport could not send`, error, options);
}

export function startFailed(context: ErrorContext, error: unknown): HostError {
  if (statusOf(error) !== undefined) return sendFailed(context, error);
  return failed(context, 'connect_failed', `server '${context.server}' could not be opened`, error, {
    reason: 'start_failed',
    execution: 'not_executed',
    hint: 'see the cause, which the attached object reported',
  });
}

export const factoryFailed = (context: ErrorContext, error: unknown): HostError =>
  failed(context, 'connect_failed', `the factory of server '${context.server}' failed`, error, {
    reason: 'factory_failed',
    execution: 'not_executed',
    hint: 'see the cause; the next start calls the factory again',
  });

export const notAttachable = (server: string, problem: string): HostError =>
  new HostError('invalid_spec', `server '${server}': the attached object ${problem}`, {
    server,
    field: 'source',
    reason: 'not_attachable',
    execution: 'not_executed',
    hint: 'attach an unstarted transport, an unconnected server, or a function that makes one',
  });

export const notJson = (context: ErrorContext, error: unknown): HostError =>
  failed(context, 'protocol_error', `server '${context.server}' sent a message that is not JSON`, error, {
    reason: 'not_json',
    execution: 'uncertain',
    hint: 'return values that JSON can represent: no cycles, no BigInt, no getters that throw',
  });

export const closeAbandoned = (server: string, limitMs: number): HostError =>
  new HostError(
    'timeout',
    `server '${server}': close() of the attached object did not settle within ${formatDuration(limitMs)}`,
    {
      server,
      reason: 'close_timeout',
      limit: limitMs,
      hint: 'the object is abandoned, and Hostler does not release its resources: make its close() settle',
    },
  );

export const closeFailed = (context: ErrorContext, error: unknown): HostError =>
  failed(context, 'transport', `server '${context.server}': close() of the attached object failed`, error, {
    reason: 'close_failed',
  });

/** Returns the HTTP status in an error of an SDK. The SDKs use -1 for no status. */
function statusOf(error: unknown): number | undefined {
  if (typeof error !== 'object' || error === null) return undefined;
  try {
    const { status, code, name } = error as { status?: unknown; code?: unknown; name?: unknown };
    for (const value of [status, code]) if (isStatus(value)) return value;
    return name === 'UnauthorizedError' ? 401 : undefined;
  } catch {
    return undefined;
  }
}

const isStatus = (value: unknown): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= 400 && value <= 599;
