/**
 * Errors of a call that is not begun, or whose outcome is not known.
 * Not here: deciding which one applies (call-decision.ts, worker-call.ts).
 *
 * Invariant: each error says whether the call was executed. Names from a worker are quoted neutralised.
 */
import { unlistedRoleHint, unlistedRoleText } from '../../config/unlisted-roles.js';
import { HostError, type HostErrorOptions, notExecuted } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';

/** What the host calls a tool. */
export interface Target {
  readonly server: string;
  readonly tool: string;
}

/** As the caller named it. */
export interface NamedTool {
  readonly server: string | undefined;
  readonly tool: string;
}

const shown = (text: string) => neutraliseLine(text, LIMITS.quotedChars);
const named = (server: string | undefined, tool: string) => ({
  ...(server === undefined ? {} : { server: shown(server) }),
  tool: shown(tool),
});
const roleText = (role: string | undefined) => (role === undefined ? '<none>' : `'${shown(role)}'`);

/** The role may use nothing at all; sent with its empty manifest. */
export const unlistedRole = (role: string): HostError =>
  notExecuted(
    'denied',
    `${unlistedRoleText(role)}: this worker may use nothing`,
    `ask the operator of the host to ${unlistedRoleHint}`,
    { role: shown(role), reason: 'unlisted_role' },
  );

export const noRole = (): HostError =>
  notExecuted(
    'denied',
    'the key of this worker has no role: it may use nothing',
    'ask the operator of the host to give the key a role, or to set unlistedRole to "allow"',
    { reason: 'no_role' },
  );

/** `because`: why the role may use nothing at all. For a named role, the error gives this reason instead of the denial of one tool. */
export function notAllowed(
  role: string | undefined,
  server: string | undefined,
  tool: string,
  because: HostError | undefined,
): HostError {
  const isUnlisted = because !== undefined && role !== undefined;
  const why = isUnlisted ? `: ${unlistedRoleText(role)}` : ` for role ${roleText(role)}`;
  return notExecuted(
    'denied',
    `tool '${shown(tool)}' is not allowed${why}`,
    (isUnlisted ? because.hint : undefined) ?? 'ask the operator to allow it for your role',
    {
      ...{ ...named(server, tool), reason: isUnlisted ? 'unlisted_role' : 'allowlist' },
      ...(role === undefined ? {} : { role: shown(role) }),
    },
  );
}

export const notFound = (server: string | undefined, tool: string): HostError =>
  notExecuted(
    'tool_not_found',
    `there is no tool '${shown(tool)}'${server === undefined ? '' : ` of server '${shown(server)}'`}`,
    'list the tools again',
    named(server, tool),
  );

export const ambiguous = (tool: string): HostError =>
  notExecuted('invalid_request', `several servers have a tool '${shown(tool)}'`, 'name the server too', {
    tool: shown(tool),
    field: 'server',
  });

export const expired = (): HostError =>
  notExecuted(
    'expired',
    'the deadline of the call passed before it could begin',
    'give the call more time, or find out why the host was late',
  );

export const cancelled = (): HostError => notExecuted('cancelled', 'the call was cancelled before it began');

export const revoked = (): HostError =>
  notExecuted(
    'denied',
    'the key of this worker was revoked or has expired',
    'ask the operator of the host for a new key',
    { reason: 'revoked' },
  );

export type UncertainReason = keyof typeof uncertainTexts;

export const uncertain = ({ server, tool }: NamedTool, reason: UncertainReason): HostError =>
  new HostError('outcome_uncertain', `${uncertainTexts[reason]} ${shown(tool)}; the call may have run`, {
    ...{ ...named(server, tool), reason, execution: 'uncertain' },
    hint: 'look at its effect before sending it again',
  });

const uncertainTexts = {
  host_lost: 'the host ended while it ran',
  /** The store cannot know whether the call ran. */
  store_changed: 'the call was sent to another store, or to this one before it lost data:',
  attempts: 'the host ended each time it ran',
};

export const keyConflict = ({ server, tool }: NamedTool): HostError =>
  notExecuted(
    'key_conflict',
    'the key of this call was used for other arguments',
    'use a new key for each call, and the same key only for the same arguments',
    named(server, tool),
  );

export const tooLarge = ({ server, tool }: Target, actual: number, limit: number): HostError =>
  new HostError(
    'result_too_large',
    `server '${server}': the result of ${shown(tool)} has ${actual} bytes, more than the ${limit} of a reply`,
    {
      ...{ ...named(server, tool), reason: 'reply_too_large', limit, actual, execution: 'uncertain' },
      hint: 'the call has run; ask for less at a time',
    },
  );

/** The text of the cause may contain secrets, so it stays in the log of the host. */
export const hostFailed = (cause: unknown): HostError =>
  new HostError('protocol_error', 'the host failed to run the call', {
    ...{ execution: 'uncertain', cause },
    hint: 'ask the operator of the host, whose log has the reason; the call may have run',
  });

/** The call can be sent again after `retryAfterMs`. */
const overloaded = (reason: string, message: string, hint: string | undefined, facts?: HostErrorOptions): HostError =>
  notExecuted('overloaded', message, hint, { reason, retryAfterMs: 1_000, ...facts });

export const tooManyWaiting = (limit: number): HostError => {
  const message = `${limit} calls of this worker wait for their turn`;
  return overloaded('worker_queue', message, 'send fewer calls at a time, or try again later', { limit });
};

export const tooManyBytes = (actual: number, limit: number): HostError => {
  const message = `the calls of this worker that run or wait would have ${actual} bytes of arguments`;
  const hint = 'wait until some of them are answered, or send smaller arguments';
  return overloaded('worker_bytes', message, hint, { actual, limit });
};

export const tooManySendings = (limit: number): HostError => {
  const message = `this call was sent ${limit} times and waits for its receipt`;
  const hint = 'wait for the receipt before sending the call again';
  return overloaded('sendings', message, hint, { limit }).with({ execution: 'uncertain' });
};

export const stopping = (): HostError =>
  overloaded('stopping', 'the host is stopping', 'send the call again when the host is back');

/** The row was removed between two steps; the next sending starts afresh. */
export const rowRemoved = (): HostError =>
  overloaded('row_removed', 'the record of the call was removed while it was read', undefined, { retryAfterMs: 100 });

/** `server`: the one with the most bytes. */
export const manifestTooLarge = (
  role: string | undefined,
  actual: number,
  limit: number,
  server: string | undefined,
): HostError =>
  notExecuted(
    'result_too_large',
    `the tools of role ${roleText(role)} have ${actual} bytes, more than the ${limit} of a manifest`,
    `allow the role fewer tools${server === undefined ? '' : `; most bytes are of server '${server}'`}`,
    { ...(server === undefined ? {} : { server }), reason: 'manifest_too_large', limit, actual },
  );
