/**
 * Decides who may do what, before anything else happens: no lookup, no charge, no connection.
 * Several guards combine by AND. A guard decides about requests; it never sees arguments or results.
 * Not here: where roles and patterns come from (config/), what a denied caller is shown (gateway/).
 *
 * Invariants: only `{ allow: true }` of every guard lets a request pass; a guard that throws, or answers anything else,
 * denies; names are compared as whole strings, so nothing that merely looks like a name matches it.
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
  /** Undefined when the request is about the server as a whole. */
  readonly tool: string | undefined;
  readonly action: GuardedAction;
}

export type Verdict =
  | { readonly allow: true }
  /** `hint`: what to do next, where it is not to ask the operator. */
  | { readonly allow: false; readonly reason: string; readonly hint?: string };
export type Guard = (request: GuardRequest) => Verdict;

/** The error the request is refused with; undefined when every guard allows it. */
export function denial(guards: () => readonly Guard[], request: GuardRequest): HostError | undefined {
  try {
    for (const guard of guards()) {
      const verdict = guard(request);
      if (verdict?.allow === true) continue;
      forsake(verdict);
      return denied(request, String(verdict?.reason ?? 'the guard gave no answer'), verdict?.hint);
    }
    return undefined;
  } catch (cause) {
    // What it threw may hold anything: it stays behind as the cause.
    return denied(request, 'the guard failed', undefined, cause);
  }
}

/** A guard may have been written as an async function. Its answer is not awaited, and its rejection must not end the process. */
function forsake(verdict: unknown): void {
  const { then } = (verdict ?? {}) as Partial<PromiseLike<unknown>>;
  if (typeof then !== 'function') return;
  const nothing = () => {};
  then.call(verdict as PromiseLike<unknown>, nothing, nothing);
}

/** The guards are read for each operation, so that a change counts from the next one on. A list needs the right to see the server. */
export const allow = (guards: () => readonly Guard[], onDenied: (request: GuardRequest) => void = () => {}): Stage => ({
  enter: (next, back) => (operation) => {
    const { principal, server, tool, kind } = operation;
    const request: GuardRequest = { principal, server, tool, action: kind === 'list' ? 'list' : 'call' };
    const error = denial(guards, request);
    if (!error) return next(operation);
    // The denial of a call is reported with its outcome.
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

/** Tools by server; `*` stands for every one of either. */
type Rules = ReadonlyMap<string, ReadonlySet<string>>;

const any = '*';

/**
 * A `*` counts only as a whole side: `git*` is the name of a server with a star in it. A role with an empty list is locked
 * out. No role counts as a role that is not listed.
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
      // One tool of a server is enough to see the server, and not to start another program under its name.
      if (tool === undefined) return action === 'list' || tools.has(any);
      return tools.has(any) || tools.has(tool);
    };
    if (permits(rules.get(server)) || permits(rules.get(any))) return { allow: true };
    return deny(rules.size === 0 ? `role '${role}' may use nothing` : `no rule of role '${role}' allows it`);
  };
}

/** Where no roles are configured: who names none passes, and who names one is not given everything. */
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

/** The rule that takes the tool out; undefined when none does. */
export function ruleAgainst({ allow, deny }: ToolRules, tool: string): string | undefined {
  if (deny.some((pattern) => matches(pattern, tool))) return 'tools.deny of its server names it';
  const isAllowed = allow?.some((pattern) => matches(pattern, tool)) ?? true;
  return isAllowed ? undefined : 'tools.allow of its server does not name it';
}

/** `rulesOf` is asked at each call, so that a change counts from the next one on. */
export const toolRulesGuard =
  (rulesOf: (server: string) => ToolRules | undefined): Guard =>
  ({ server, tool }) => {
    if (tool === undefined) return allowed;
    const rules = rulesOf(server);
    // Nearly every server, with every call.
    if (rules === noToolRules) return allowed;
    const reason = rules && ruleAgainst(rules, tool);
    return reason === undefined ? allowed : { allow: false, reason, hint: toolRulesHint };
  };
