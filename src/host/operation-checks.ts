/** Validates the arguments of an embedder, which may be untyped JavaScript, before anything is charged or started. */
import { isCancelSignal } from '../kernel/cancel-signal.js';
import { HostError, isHostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import type { ToolArguments } from '../session/session.js';
import type { JsonText } from '../wire/channel.js';
import { checkObject } from '../wire/json-edit.js';
import { listenMethod } from '../wire/methods.js';
import type { HostCallOptions } from './host-interface.js';

const unsent = { phase: 'queued', execution: 'not_executed' } as const;
const instanceCharsMax = 512;
const methodCharsMax = 256;
const keyCharsMax = 512;

/** Methods that have their own operation with more checks, or that belong to the connection. */
const otherOperations: ReadonlySet<string> = new Set([
  'tools/call',
  'tools/list',
  'initialize',
  listenMethod,
  'ping',
  'server/discover',
]);

export function invalidCall(server: string, tool: string, options: HostCallOptions): HostError | undefined {
  const { deadlineMs, signal, instance } = options;
  if (typeof server !== 'string') return invalid(server, 'server', 'is not a string', 'give the name of a server');
  if (typeof tool !== 'string') return invalid(server, 'tool', 'is not a string', 'give the name of a tool');
  if (deadlineMs !== undefined && !isNumber(deadlineMs))
    return invalid(server, 'deadlineMs', 'is not a number', 'pass the time limit in milliseconds, or omit it');
  if (signal !== undefined && !isCancelSignal(signal))
    return invalid(server, 'signal', 'is not an AbortSignal', 'give the signal of an AbortController');
  if (instance !== undefined && !isInstance(instance))
    return invalid(server, 'instance', `is not a text of 1 to ${instanceCharsMax} characters`, 'name the client');
  return undefined;
}

export const invalidKey = (server: string, key: unknown): HostError | undefined =>
  typeof key === 'string' && key !== '' && key.length <= keyCharsMax
    ? undefined
    : invalid(
        server,
        'idempotencyKey',
        `is not a text of 1 to ${keyCharsMax} characters`,
        'use a new text for each call, and the same one to send a call again',
      );

export const noKeyedCalls = (server: string): HostError =>
  invalid(server, 'idempotencyKey', 'is not supported by this host', 'make the host with createHost');

export const hostClosed = (server: string): HostError =>
  new HostError(
    'server_stopped',
    `server '${neutraliseLine(server, LIMITS.quotedChars)}' cannot be called: the host is closed`,
    { server, reason: 'closed', execution: 'not_executed' },
  );

/**
 * Returns the arguments as JSON text. A caller that passes bytes must not change them until the call is sent: they are not
 * checked again.
 */
export function argumentsText(args: ToolArguments, server: string, tool: string): JsonText | HostError {
  try {
    if (typeof args === 'string' || args instanceof Uint8Array) {
      checkObject(args, 'arguments');
      return args;
    }
    // JSON.stringify returns undefined for values such as a function.
    const text = JSON.stringify(args) as string | undefined;
    return text?.startsWith('{') ? text : unwritable(server, tool);
  } catch (error) {
    return isHostError(error) ? error : unwritable(server, tool, error);
  }
}

export function checkMethod(server: string, method: unknown): void {
  const isName = typeof method === 'string' && method !== '' && method.length <= methodCharsMax;
  if (isName && !otherOperations.has(method) && !method.startsWith('notifications/')) return;
  throw invalid(
    server,
    'method',
    'cannot be sent with request()',
    'for tools and lists, use call, tools, list or read; give any other method by its name in the protocol',
  );
}

const isNumber = (value: unknown): value is number => typeof value === 'number' && !Number.isNaN(value);
const isInstance = (value: unknown): boolean =>
  typeof value === 'string' && value.length > 0 && value.length <= instanceCharsMax;

const unwritable = (server: string, tool: string, cause?: unknown): HostError =>
  new HostError('invalid_arguments', `server '${server}': the arguments cannot be written as JSON`, {
    ...unsent,
    server,
    tool,
    field: 'args',
    hint: 'give an object without cycles, functions and BigInts, or the text of a JSON object',
    ...(cause === undefined ? {} : { cause }),
  });

const invalid = (server: string, field: string, what: string, hint: string): HostError =>
  new HostError('invalid_request', `server '${neutraliseLine(String(server), LIMITS.quotedChars)}': ${field} ${what}`, {
    ...unsent,
    field,
    hint,
  });
