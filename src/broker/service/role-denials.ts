/**
 * Why a worker may use nothing at all, because of its role. Goes along with its empty manifest, and is what it is told.
 * Not here: refusals of single calls (call-refusals.ts).
 */
import { unlistedRoleHint, unlistedRoleText } from '../../config/unlisted-roles.js';
import { HostError } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';

export const unlistedRole = (role: string): HostError =>
  new HostError('denied', `${unlistedRoleText(role)}: this worker may use nothing`, {
    role: neutraliseLine(role, LIMITS.quotedChars),
    reason: 'unlisted_role',
    execution: 'not_executed',
    hint: `ask the operator of the host to ${unlistedRoleHint}`,
  });

export const noRole = (): HostError =>
  new HostError('denied', 'the key of this worker has no role: it may use nothing', {
    reason: 'no_role',
    execution: 'not_executed',
    hint: 'ask the operator of the host to give the key a role, or to set unlistedRole to "allow"',
  });
