/**
 * What is said of a call that is not begun, or whose outcome nobody knows.
 * Not here: when each is said (brokered-call.ts), refusals of what is no call (broker-service.ts).
 *
 * Invariant: each says what is known of its execution; names that came from a worker are quoted neutralised.
 */
import { unlistedRoleText } from '../../config/unlisted-roles.js';
import { HostError } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import type { Target } from './manifests.js';

const shown = (text: string) => neutraliseLine(text, LIMITS.quotedChars);

/** `because`: why the role may use nothing at all. It explains more than the name of one tool. */
export function notAllowed(
  role: string | undefined,
  server: string | undefined,
  tool: string,
  because: HostError | undefined,
): HostError {
  const isUnlisted = because !== undefined && role !== undefined;
  const shownRole = role === undefined ? '<none>' : `'${role}'`;
  const why = isUnlisted ? `: ${unlistedRoleText(role)}` : ` for role ${shownRole}`;
  return new HostError('denied', `tool '${shown(tool)}' is not allowed${why}`, {
    ...(server === undefined ? {} : { server: shown(server) }),
    tool: shown(tool),
    ...(role === undefined ? {} : { role }),
    reason: isUnlisted ? 'unlisted_role' : 'allowlist',
    execution: 'not_executed',
    hint: (isUnlisted ? because.hint : undefined) ?? 'ask the operator to allow it for your role',
  });
}

export const notFound = (server: string | undefined, tool: string): HostError =>
  new HostError(
    'tool_not_found',
    `there is no tool '${shown(tool)}'${server === undefined ? '' : ` of server '${shown(server)}'`}`,
    {
      ...(server === undefined ? {} : { server: shown(server) }),
      tool: shown(tool),
      execution: 'not_executed',
      hint: 'list the tools again',
    },
  );

export const ambiguous = (tool: string): HostError =>
  new HostError('invalid_request', `several servers have a tool '${shown(tool)}'`, {
    tool: shown(tool),
    field: 'server',
    execution: 'not_executed',
    hint: 'name the server too',
  });

export const expired = (): HostError =>
  new HostError('expired', 'its time was over before it could be run', {
    execution: 'not_executed',
    hint: 'give it more time, or see why the host was late',
  });

export const nobodyWaits = (): HostError =>
  new HostError('cancelled', 'it was cancelled before it was run', { execution: 'not_executed' });

export const revoked = (): HostError =>
  new HostError('denied', 'whoever asked has no key any more', {
    reason: 'revoked',
    execution: 'not_executed',
    hint: 'ask the operator for a key',
  });

export const lost = ({ server, tool }: Target): HostError =>
  new HostError(
    'outcome_uncertain',
    `server '${server}': the host that ran ${shown(tool)} ended before it was done; the call may have run`,
    {
      server,
      tool: shown(tool),
      reason: 'host_lost',
      execution: 'uncertain',
      hint: 'look at its effect before sending it again',
    },
  );

export const conflict = ({ server, tool }: Target): HostError =>
  new HostError('key_conflict', `server '${server}': the key of this call was used for another one`, {
    server,
    tool: shown(tool),
    execution: 'not_executed',
    hint: 'use a new key for each call, and the same one only for the same arguments',
  });

export const tooLarge = ({ server, tool }: Target, actual: number, limit: number): HostError =>
  new HostError(
    'result_too_large',
    `server '${server}': the result of ${shown(tool)} is too large to be sent to a worker`,
    {
      server,
      tool: shown(tool),
      reason: 'reply_too_large',
      limit,
      actual,
      execution: 'uncertain',
      hint: 'the call has run; ask for less at a time',
    },
  );

/** What it says may hold anything: it stays here. */
export const ownMistake = (cause: unknown): HostError =>
  new HostError('protocol_error', 'the host failed to run the call', {
    execution: 'uncertain',
    hint: 'ask the operator of the host, whose log says why; the call may have run',
    cause,
  });
