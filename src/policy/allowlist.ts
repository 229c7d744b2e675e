/**
 * The first stage: guards decide whether a principal may use a server or a tool. Several guards combine by AND.
 * Not here: parsing of roles and patterns (config/), what a denied caller sees (gateway/).
 *
 * Invariants: a request passes only if every guard returns `{ allow: true }`; a guard that throws or returns anything else
 * denies. Names are compared as whole strings. A guard never sees arguments or results.
 */
import type { RolePattern } from '../config/host-config.js';
import { noToolRules, type ToolRules } from '../config/tool-rules.js';
import { unlistedRoleHint, unlistedRoleText } from '../config/unlisted-roles.js';
import { HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { namesOf, type Principal, type Stage } from './operation.js';
import type { GuardedAction } from './policy-events.js';

export interface GuardRequest {
  readonly principal: Principal;
  readonly server: string;
  /** Undefined: the request is about the server as a whole. */
  readonly tool: string | undefined;
  readonly action: GuardedAction;
}

export type Verdict =
  | { readonly allow: true }
  /** `hint`: next step for the caller; default: ask the operator. */
  | { readonly allow: false; readonly reason: string; readonly hint?: string };
export type Guard = (request: GuardRequest) => Verdict;

/** The error for a denied request; undefined if every guard allows it. */
export function denial(guards: () => readonly Guard[], request: GuardRequest): HostError | undefined {
  try {
    for (const guard of guards()) {
      const verdict = guard(request);
      if (verdict?.allow === true) continue;
      ignoreRejection(verdict);
      return denied(request, String(verdict?.reason ?? 'the guard gave no answer'), verdict?.hint);
    }
    return undefined;
  } catch (cause) {
    // The text of a thrown value may contain secrets, so the message does not quote it.
    return denied(request, 'the guard failed', undefined, cause);
  }
}

/** An async guard returns a promise, which counts as a denial. Handles its rejection, which would otherwise end the process. */
function ignoreRejection(verdict: unknown): void {
  const { then } = (verdict ?? {}) as Partial<PromiseLike<unknown>>;
  if (typeof then !== 'function') return;
  const nothing = () => {};
  then.call(verdict as PromiseLike<unknown>, nothing, nothing);
}

/** Guards are read for each operation, so a change applies to the next one. A list needs only the right to see the server. */
export const allow = (guards: () => readonly Guard[], onDenied: (request: GuardRequest) => void = () => {}): Stage => ({
  enter: (next, back) => (operation) => {
    const { principal, server, tool, kind } = operation;
    const request: GuardRequest = { principal, server, tool, action: kind === 'list' ? 'list' : 'call' };
    const error = denial(guards, request);
    if (!error) return next(operation);
    // The outcome event of a call already reports its denial.
    if (kind !== 'call') onDenied(request);
    back(operation, error);
  },
});

function denied(request: GuardRequest, reason: string, hint?: string, cause?: unknown): HostError {
  const { principal, server, tool, action } = request;
  const shown = (text: string) => neutraliseLine(text, LIMITS.quotedChars);
  const what = tool === undefined ? action : `${action} of ${shown(`${server}/${tool}`)}`;
  return new HostError('denied', `server '${shown(server)}': ${what} denied by allowlist: ${shown(reason)}`, {
    ...namesOf(request),
    ...(principal.role === undefined ? {} : { role: shown(principal.role) }),
    reason: 'allowlist',
    phase: 'queued',
    execution: 'not_executed',
    hint: hint === undefined ? 'ask the operator to allow it for your role' : shown(String(hint)),
    ...(cause === undefined ? {} : { cause }),
  });
}

/** Tool names by server name; `*` matches any name. */
type Rules = ReadonlyMap<string, ReadonlySet<string>>;

const any = '*';

/**
 * `*` is a wildcard only as a whole side of a pattern; `git*` is a literal name. A role with an empty list is denied
 * everything. A caller without a role counts as a caller with an unlisted role.
 */
export function roleGuard(roles: ReadonlyMap<string, readonly RolePattern[]>, unlistedRole: 'deny' | 'allow'): Guard {
  const rulesByRole = new Map([...roles].map(([role, patterns]) => [role, compile(patterns)]));
  return ({ principal: { role }, server, tool, action }) => {
    const rules = role === undefined ? undefined : rulesByRole.get(role);
    if (!rules) {
      if (unlistedRole === 'allow') return { allow: true };
      return role === undefined
        ? deny('the caller has no role')
        : { allow: false, reason: unlistedRoleText(role), hint: unlistedRoleHint };
    }
    const permits = (tools: ReadonlySet<string> | undefined): boolean => {
      if (!tools) return false;
      // A rule for one tool allows a list of its server, but no other action on the server as a whole.
      if (tool === undefined) return action === 'list' || tools.has(any);
      return tools.has(any) || tools.has(tool);
    };
    if (permits(rules.get(server)) || permits(rules.get(any))) return { allow: true };
    return deny(rules.size === 0 ? `role '${role}' may use nothing` : `no rule of role '${role}' allows it`);
  };
}

/** For a configuration without roles: allows callers without a role and denies callers with one. */
export const noRoles: Guard = ({ principal: { role } }) =>
  role === undefined
    ? allowed
    : {
        allow: false,
        reason: `${unlistedRoleText(role)}, no roles are configured`,
        hint: unlistedRoleHint,
      };

const allowed: Verdict = { allow: true };
const deny = (reason: string): Verdict => ({ allow: false, reason });

function compile(patterns: readonly RolePattern[]): Rules {
  const rules = new Map<string, Set<string>>();
  for (const { server, tool } of patterns) {
    const tools = rules.get(server);
    if (tools) tools.add(tool);
    else rules.set(server, new Set([tool]));
  }
  return rules;
}

const toolRulesHint = 'change the tools of this server in the configuration';

const matches = (pattern: string, tool: string): boolean =>
  pattern.endsWith(any) ? tool.startsWith(pattern.slice(0, -1)) : pattern === tool;

/** Describes the rule that excludes the tool; undefined if no rule does. */
export function ruleAgainst({ allow, deny }: ToolRules, tool: string): string | undefined {
  if (deny.some((pattern) => matches(pattern, tool))) return 'tools.deny of its server names it';
  const isAllowed = allow?.some((pattern) => matches(pattern, tool)) ?? true;
  return isAllowed ? undefined : 'tools.allow of its server does not name it';
}

/** `rulesOf` is called for each request, so a change applies to the next one. */
export const toolRulesGuard =
  (rulesOf: (server: string) => ToolRules | undefined): Guard =>
  ({ server, tool }) => {
    if (tool === undefined) return allowed;
    const rules = rulesOf(server);
    // Fast path: nearly all servers have no tool rules.
    if (rules === noToolRules) return allowed;
    const reason = rules && ruleAgainst(rules, tool);
    return reason === undefined ? allowed : { allow: false, reason, hint: toolRulesHint };
  };
