/** Errors that a worker makes itself. Errors of a host are passed on unchanged. */
import { type ErrorCode, type Execution, HostError, type HostErrorOptions, notExecuted } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';

export interface CallTarget {
  readonly server?: string | undefined;
  readonly tool: string;
}

const serversShown = 10;
const shown = (name: string): string => neutraliseLine(name, LIMITS.quotedChars);
const factsOf = ({ server, tool }: CallTarget) => ({ ...(server === undefined ? {} : { server }), tool });

function callError(code: ErrorCode, call: CallTarget, what: string, facts: HostErrorOptions): HostError {
  const server = call.server === undefined ? '' : `server '${shown(call.server)}': `;
  return new HostError(code, `${server}tool '${shown(call.tool)}'${what}`, { ...factsOf(call), ...facts });
}

export const tooManyCalls = (limit: number): HostError => {
  const message = `this worker has reached its limit of ${limit} calls in flight`;
  return notExecuted('overloaded', message, waitHint, { reason: 'calls', limit, actual: limit + 1 });
};

export const tooManyBytes = (limit: number, actual: number): HostError => {
  const message = `the calls in flight would have ${actual} bytes of arguments`;
  return notExecuted('overloaded', message, `${waitHint}, or send smaller arguments`, {
    reason: 'bytes',
    limit,
    actual,
  });
};
const waitHint = 'wait until some of them are answered';

export const tooLargeCall = (call: CallTarget, limit: number, actual: number): HostError =>
  callError('invalid_arguments', call, `: the arguments have ${actual} bytes, at most ${limit} are allowed`, {
    ...{ field: 'args', reason: 'message_too_large', execution: 'not_executed', limit, actual },
    hint: 'send smaller arguments',
  });

const lateHints: Record<Execution, string> = {
  uncertain: 'it may have run: look at its effect before you call it again, or allow more time',
  not_executed: 'the call was not sent: see whether the broker can be reached',
};
export const lateCall = (call: CallTarget, execution: Execution): HostError =>
  callError('timeout', call, ' did not answer in time', { execution, hint: lateHints[execution] });

export const cancelledCall = (call: CallTarget, execution: Execution): HostError =>
  callError('cancelled', call, ': the call was cancelled', { execution });

export const closedCall = (call: CallTarget, execution: Execution): HostError =>
  callError('cancelled', call, ': the worker was closed', { execution, reason: 'closed' });

export const notConnectedCall = (call: CallTarget): HostError =>
  callError('reconnecting', call, ': the worker is not connected to its broker', {
    execution: 'not_executed',
    hint: 'try again in a moment',
  });

/** The worker cannot connect, for this reason. */
export const refusedCall = (call: CallTarget, execution: Execution, error: HostError): HostError =>
  error.with({ ...factsOf(call), execution });

export const keyConflict = (call: CallTarget): HostError =>
  callError('key_conflict', call, ': another call in flight has the same idempotency key', {
    execution: 'not_executed',
    hint: 'give each call its own idempotency key',
  });

export const unknownTool = (call: CallTarget): HostError =>
  callError('tool_not_found', call, ' does not exist for this worker', {
    execution: 'not_executed',
    hint: 'list the tools to see their names',
  });

export const ambiguousTool = (call: CallTarget, servers: readonly string[]): HostError =>
  callError('invalid_request', call, ' exists on several servers', {
    ...{ field: 'server', execution: 'not_executed' },
    hint: `name one of ${servers.slice(0, serversShown).map(shown).join(', ')}`,
  });

export const notConnected = (cause: HostError | undefined): HostError =>
  new HostError('connect_failed', cause ? `not connected: ${cause.message}` : 'not connected to the broker in time', {
    ...cause?.details,
    execution: 'not_executed',
    hint: cause?.hint ?? 'see whether the broker and the host run and can be reached',
    cause,
  });

/** The host stopped before it began the call. */
export const isHandedBack = ({ details }: HostError): boolean =>
  details.reason === 'stopping' && details.execution === 'not_executed';

const staleCodes: ReadonlySet<string> = new Set(['tool_not_found', 'server_not_found', 'schema_changed', 'denied']);

/** The error shows that the manifest of this worker is out of date. */
export const isStale = ({ code, details }: HostError): boolean =>
  staleCodes.has(code) || details.reason === 'stale_manifest';
