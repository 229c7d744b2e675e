/**
 * What went wrong with an attached object, as a HostError. What a transport of an SDK throws is read by shape: an HTTP status in
 * `code` (SDK 1) or `status` (SDK 2), and `UnauthorizedError` by its name.
 */
import { HostError, thrownText } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import { statusError } from '../http/http-errors.js';

/** What every error about one attached server needs. */
export interface ErrorContext {
  readonly server: string;
  /** Redacts and neutralises a text that is quoted. */
  readonly cleanText: (text: string) => string;
  readonly now: () => Date;
}

/** `send` of the transport threw or rejected: whether the message left is not known, unless a status says so. */
export function sendFailed(context: ErrorContext, error: unknown): HostError {
  const { server } = context;
  const status = statusOf(error);
  if (status !== undefined) {
    const now = context.now();
    const facts = { server, status, headers: {}, inSession: false, rpcCode: undefined, now, sent: undefined };
    return statusError(facts).with({ cause: error });
  }
  return new HostError('transport', `server '${server}': its transport could not send: ${textOf(context, error)}`, {
    server,
    reason: 'send_failed',
    execution: 'uncertain',
    cause: error,
  });
}

/** `start` of the transport, or `connect` of the server, threw or rejected. */
export function startFailed(context: ErrorContext, error: unknown): HostError {
  const { server } = context;
  const status = statusOf(error);
  if (status !== undefined) return sendFailed(context, error);
  return new HostError('connect_failed', `server '${server}' could not be opened: ${textOf(context, error)}`, {
    server,
    reason: 'start_failed',
    execution: 'not_executed',
    hint: 'look at the cause; the attached object reported it',
    cause: error,
  });
}

/** The factory threw or rejected. */
export const factoryFailed = (context: ErrorContext, error: unknown): HostError =>
  new HostError('connect_failed', `the factory of server '${context.server}' failed: ${textOf(context, error)}`, {
    server: context.server,
    reason: 'factory_failed',
    execution: 'not_executed',
    hint: 'look at the cause; the factory is called again for the next start',
    cause: error,
  });

export const notAttachable = (server: string, problem: string): HostError =>
  new HostError('invalid_spec', `server '${server}': the attached object ${problem}`, {
    server,
    field: 'source',
    reason: 'not_attachable',
    execution: 'not_executed',
    hint: 'attach an unstarted transport, an unconnected server, or a function that makes one',
  });

/** The message of the server cannot be serialised. */
export const notJson = (context: ErrorContext, error: unknown): HostError =>
  new HostError(
    'protocol_error',
    `server '${context.server}' sent a message that is not JSON: ${textOf(context, error)}`,
    {
      server: context.server,
      reason: 'not_json',
      execution: 'uncertain',
      hint: 'return values that JSON can hold: no cycles, no BigInt, no getters that throw',
      cause: error,
    },
  );

export const closeAbandoned = (server: string, limitMs: number): HostError =>
  new HostError(
    'timeout',
    `server '${server}': the attached object did not close within ${limitMs} ms; it is abandoned`,
    {
      server,
      reason: 'close_timeout',
      limit: limitMs,
      hint: 'its close() must settle; whatever it still holds is not released by Hostler',
    },
  );

export const closeFailed = (context: ErrorContext, error: unknown): HostError =>
  new HostError(
    'transport',
    `server '${context.server}': close() of the attached object failed: ${textOf(context, error)}`,
    {
      server: context.server,
      reason: 'close_failed',
      cause: error,
    },
  );

/** The HTTP status that an error of an SDK carries. The SDKs write -1 where there is none. */
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

const textOf = ({ cleanText }: ErrorContext, error: unknown): string =>
  cleanText(thrownText(error).slice(0, LIMITS.quotedChars));
