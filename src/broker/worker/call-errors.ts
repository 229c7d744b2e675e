/** Errors that a worker makes itself. Errors of a host are passed on unchanged. */
import { type Execution, HostError } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';

export interface CallTarget {
  readonly server: string | undefined;
  readonly tool: string;
}

const serversShown = 10;
const shown = (name: string): string => neutraliseLine(name, LIMITS.quotedChars);
const factsOf = ({ server, tool }: CallTarget) => ({ ...(server === undefined ? {} : { server }), tool });
const nameOf = ({ server, tool }: CallTarget): string =>
  server === undefined ? `tool '${shown(tool)}'` : `server '${shown(server)}': tool '${shown(tool)}'`;

export const tooManyCalls = (limit: number): HostError =>
  new HostError('overloaded', `this worker has ${limit} calls in flight`, {
    ...{ reason: 'calls', execution: 'not_executed', limit, actual: limit + 1 },
    hint: 'wait until some of them are answered',
  });

export const tooManyBytes = (limit: number, actual: number): HostError =>
  new HostError('overloaded', `the calls in flight would have ${actual} bytes of arguments`, {
    ...{ reason: 'bytes', execution: 'not_executed', limit, actual },
    hint: 'wait until some of them are answered, or send smaller arguments',
  });

export const tooLargeCall = (call: CallTarget, limit: number, actual: number): HostError =>
  new HostError(
    'invalid_arguments',
    `${nameOf(call)}: the arguments have ${actual} bytes, at most ${limit} are allowed`,
    {
      ...factsOf(call),
      ...{ field: 'args', reason: 'message_too_large', execution: 'not_executed', limit, actual },
      hint: 'send smaller arguments',
    },
  );

export const lateCall = (call: CallTarget, execution: Execution): HostError =>
  new HostError('timeout', `${nameOf(call)} did not answer in time`, {
    ...factsOf(call),
    execution,
    hint:
      execution === 'uncertain'
        ? 'it may have run: look before you call it again, or allow more time'
        : 'the call was not sent: see whether the broker can be reached',
  });

export const cancelledCall = (call: CallTarget, execution: Execution): HostError =>
  new HostError('cancelled', `${nameOf(call)}: the call was cancelled`, { ...factsOf(call), execution });

export const notConnectedCall = (call: CallTarget): HostError =>
  new HostError('reconnecting', `${nameOf(call)}: the worker is not connected to its broker`, {
    ...factsOf(call),
    execution: 'not_executed',
    hint: 'try again in a moment',
  });

/** The worker cannot connect, for this reason. */
export const refusedCall = (call: CallTarget, execution: Execution, error: HostError): HostError =>
  error.with({ ...factsOf(call), execution });

export const closedCall = (call: CallTarget, execution: Execution): HostError =>
  new HostError('cancelled', `${nameOf(call)}: the worker was closed`, {
    ...factsOf(call),
    execution,
    reason: 'closed',
  });

export const keyConflict = (call: CallTarget): HostError =>
  new HostError('key_conflict', `${nameOf(call)}: another call in flight has the same idempotency key`, {
    ...factsOf(call),
    execution: 'not_executed',
    hint: 'give each call its own idempotency key',
  });

export function unknownTool(call: CallTarget): HostError {
  const where = call.server === undefined ? '' : ` of server '${shown(call.server)}'`;
  return new HostError('tool_not_found', `this worker has no tool '${shown(call.tool)}'${where}`, {
    ...factsOf(call),
    execution: 'not_executed',
    hint: 'list the tools to see their names',
  });
}

export const ambiguousTool = (call: CallTarget, servers: readonly string[]): HostError =>
  new HostError('invalid_request', `several servers have a tool '${shown(call.tool)}'`, {
    ...factsOf(call),
    field: 'server',
    execution: 'not_executed',
    hint: `name one of ${servers.slice(0, serversShown).map(shown).join(', ')}`,
  });

export const notConnected = (cause: HostError | undefined): HostError =>
  new HostError('connect_failed', cause ? `not connected: ${cause.message}` : 'not connected to the broker in time', {
    ...(cause?.details ?? {}),
    execution: 'not_executed',
    hint: cause?.hint ?? 'see whether the broker and the host run and can be reached',
    cause,
  });

const staleCodes: ReadonlySet<string> = new Set(['tool_not_found', 'server_not_found', 'schema_changed', 'denied']);

/** The error shows that the manifest of this worker is out of date. */
export const isStale = ({ code, details }: HostError): boolean =>
  staleCodes.has(code) || details.reason === 'stale_manifest';
