/**
 * Errors of a call that is not begun, or whose outcome is not known.
 * Not here: deciding which one applies (call-decision.ts, worker-call.ts).
 *
 * Invariant: each error says whether the call was executed. Names from a worker are quoted neutralised.
 */
import { unlistedRoleHint, unlistedRoleText } from '../../config/unlisted-roles.js';
import { HostError } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';

/** What the host calls a tool. */
export interface Target {
  readonly server: string;
  readonly tool: string;
}

const shown = (text: string) => neutraliseLine(text, LIMITS.quotedChars);
const execution = 'not_executed';

/** The role may use nothing at all; sent with its empty manifest. */
export const unlistedRole = (role: string): HostError =>
  new HostError('denied', `${unlistedRoleText(role)}: this worker may use nothing`, {
    role: shown(role),
    reason: 'unlisted_role',
    execution,
    hint: `ask the operator of the host to ${unlistedRoleHint}`,
  });

export const noRole = (): HostError =>
  new HostError('denied', 'the key of this worker has no role: it may use nothing', {
    reason: 'no_role',
    execution,
    hint: 'ask the operator of the host to give the key a role, or to set unlistedRole to "allow"',
  });

/** `because`: why the role may use nothing at all, which explains more than the name of one tool. */
export function notAllowed(
  role: string | undefined,
  server: string | undefined,
  tool: string,
  because: HostError | undefined,
): HostError {
  const isUnlisted = because !== undefined && role !== undefined;
  const shownRole = role === undefined ? '<none>' : `'${shown(role)}'`;
  const why = isUnlisted ? `: ${unlistedRoleText(role)}` : ` for role ${shownRole}`;
  return new HostError('denied', `tool '${shown(tool)}' is not allowed${why}`, {
    ...named(server, tool),
    ...(role === undefined ? {} : { role: shown(role) }),
    reason: isUnlisted ? 'unlisted_role' : 'allowlist',
    execution,
    hint: (isUnlisted ? because.hint : undefined) ?? 'ask the operator to allow it for your role',
  });
}

export const notFound = (server: string | undefined, tool: string): HostError =>
  new HostError(
    'tool_not_found',
    `there is no tool '${shown(tool)}'${server === undefined ? '' : ` of server '${shown(server)}'`}`,
    { ...named(server, tool), execution, hint: 'list the tools again' },
  );

export const ambiguous = (tool: string): HostError =>
  new HostError('invalid_request', `several servers have a tool '${shown(tool)}'`, {
    tool: shown(tool),
    field: 'server',
    execution,
    hint: 'name the server too',
  });

export const expired = (): HostError =>
  new HostError('expired', 'the deadline of the call passed before it could begin', {
    execution,
    hint: 'give the call more time, or find out why the host was late',
  });

export const cancelled = (): HostError =>
  new HostError('cancelled', 'the call was cancelled before it began', { execution });

export const revoked = (): HostError =>
  new HostError('denied', 'the key of this worker was revoked or has expired', {
    reason: 'revoked',
    execution,
    hint: 'ask the operator of the host for a new key',
  });

/** `reason`: `host_lost`, `store_changed` (a store that cannot know) or `attempts`. */
export const uncertain = (
  server: string | undefined,
  tool: string,
  reason: 'host_lost' | 'store_changed' | 'attempts',
): HostError =>
  new HostError('outcome_uncertain', `${uncertainTexts[reason]} ${shown(tool)}; the call may have run`, {
    ...named(server, tool),
    reason,
    execution: 'uncertain',
    hint: 'look at its effect before sending it again',
  });

const uncertainTexts = {
  host_lost: 'the host ended while it ran',
  store_changed: 'the call was sent to another store, or to this one before it lost data:',
  attempts: 'the host ended each time it ran',
};

export const keyConflict = (server: string | undefined, tool: string): HostError =>
  new HostError('key_conflict', 'the key of this call was used for other arguments', {
    ...named(server, tool),
    execution,
    hint: 'use a new key for each call, and the same key only for the same arguments',
  });

export const tooLarge = ({ server, tool }: Target, actual: number, limit: number): HostError =>
  new HostError(
    'result_too_large',
    `server '${server}': the result of ${shown(tool)} has ${actual} bytes, more than the ${limit} of a reply`,
    {
      ...named(server, tool),
      reason: 'reply_too_large',
      limit,
      actual,
      execution: 'uncertain',
      hint: 'the call has run; ask for less at a time',
    },
  );

/** The text of the cause may contain secrets, so it stays in the log of the host. */
export const hostFailed = (cause: unknown): HostError =>
  new HostError('protocol_error', 'the host failed to run the call', {
    execution: 'uncertain',
    hint: 'ask the operator of the host, whose log has the reason; the call may have run',
    cause,
  });

export const tooManyWaiting = (limit: number): HostError =>
  new HostError('overloaded', `${limit} calls of this worker wait for their turn`, {
    reason: 'worker_queue',
    limit,
    execution,
    retryAfterMs: 1_000,
    hint: 'send fewer calls at a time, or try again later',
  });

export const stopping = (): HostError =>
  new HostError('overloaded', 'the host is stopping', {
    reason: 'stopping',
    execution,
    retryAfterMs: 1_000,
    hint: 'send the call again when the host is back',
  });

/** The row was removed between two steps; the next sending starts afresh. */
export const rowRemoved = (): HostError =>
  new HostError('overloaded', 'the record of the call was removed while it was read', {
    reason: 'row_removed',
    execution,
    retryAfterMs: 100,
  });

/** `server`: the one with the most bytes. */
export const manifestTooLarge = (
  role: string | undefined,
  actual: number,
  limit: number,
  server: string | undefined,
): HostError =>
  new HostError(
    'result_too_large',
    `the tools of role ${role === undefined ? '<none>' : `'${shown(role)}'`} have ${actual} bytes, more than the ${limit} of a manifest`,
    {
      ...(server === undefined ? {} : { server }),
      reason: 'manifest_too_large',
      limit,
      actual,
      execution,
      hint: `allow the role fewer tools${server === undefined ? '' : `; most bytes are of server '${server}'`}`,
    },
  );

const named = (server: string | undefined, tool: string) => ({
  ...(server === undefined ? {} : { server: shown(server) }),
  tool: shown(tool),
});
