/** How calls fail on the worker's own side, in words. What a host answered is handed on as it is. */
import { type Execution, HostError } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import { callBytesMax, callsMax } from './call-bounds.js';

interface Named {
  readonly server: string | undefined;
  readonly tool: string;
}

const shown = (name: string): string => neutraliseLine(name, LIMITS.quotedChars);
const factsOf = ({ server, tool }: Named) => ({ ...(server === undefined ? {} : { server }), tool });
const nameOf = ({ server, tool }: Named): string =>
  server === undefined ? `tool '${shown(tool)}'` : `server '${shown(server)}': tool '${shown(tool)}'`;

export const tooManyCalls = (actual: number): HostError =>
  new HostError('overloaded', `${actual} calls of this worker are under way`, {
    reason: 'calls',
    execution: 'not_executed',
    limit: callsMax,
    actual,
    hint: 'wait for some of them to be answered',
  });

export const tooManyBytes = (actual: number): HostError =>
  new HostError('overloaded', `calls under way would hold ${actual} bytes of arguments`, {
    reason: 'bytes',
    execution: 'not_executed',
    limit: callBytesMax,
    actual,
    hint: 'wait for some of them to be answered, or send less with each',
  });

export const tooSlow = (call: Named, execution: Execution): HostError =>
  new HostError('timeout', `${nameOf(call)} did not answer in time`, {
    ...factsOf(call),
    execution,
    hint:
      execution === 'uncertain'
        ? 'it may have run: find out before you call it again, or give it more time'
        : 'the request was not sent: see whether the broker can be reached',
  });

export const cancelledCall = (call: Named, execution: Execution): HostError =>
  new HostError('cancelled', `${nameOf(call)}: the call was cancelled`, { ...factsOf(call), execution });

export const noLink = (call: Named): HostError =>
  new HostError('reconnecting', `${nameOf(call)} cannot be reached: the worker reconnects to its broker`, {
    ...factsOf(call),
    execution: 'not_executed',
    hint: 'try again in a moment',
  });

export const refusedCall = (call: Named, execution: Execution, error: HostError): HostError =>
  error.with({ ...factsOf(call), execution });

export const closedWorker = (call: Named, execution: Execution): HostError =>
  new HostError('cancelled', `${nameOf(call)}: the worker was closed`, {
    ...factsOf(call),
    execution,
    reason: 'closed',
  });

export const keyConflict = (call: Named): HostError =>
  new HostError('key_conflict', `${nameOf(call)}: its key is in use for another call`, {
    ...factsOf(call),
    execution: 'not_executed',
    hint: 'give each call an idempotency key of its own',
  });

export const unknownTool = (call: Named): HostError =>
  new HostError('tool_not_found', `there is no ${nameOf(call)} for this worker`, {
    ...factsOf(call),
    execution: 'not_executed',
    hint: 'list the tools to see which there are',
  });

export const whichServer = (call: Named, servers: readonly string[]): HostError =>
  new HostError('invalid_request', `${nameOf(call)} is a tool of several servers`, {
    ...factsOf(call),
    field: 'server',
    execution: 'not_executed',
    hint: `name one of ${servers.slice(0, 10).map(shown).join(', ')}`,
  });

export const notAResult = (): HostError =>
  new HostError('protocol_error', 'the host answered a call with something else', {
    execution: 'uncertain',
    hint: 'both sides must run versions of Hostler that know each other',
  });

const staleCodes: ReadonlySet<string> = new Set(['tool_not_found', 'server_not_found', 'schema_changed', 'denied']);

/** The host knows something of its tools that we do not. */
export const isStale = ({ code, details }: HostError): boolean =>
  staleCodes.has(code) || details.reason === 'stale_manifest';
