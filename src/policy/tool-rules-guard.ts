/**
 * The `tools` rules of a server's entry as a guard: what the operator took out is not there for anybody.
 * Not here: reading the rules (config/tool-rules.ts), roles (allowlist.ts).
 */
import { noToolRules, type ToolRules } from '../config/tool-rules.js';
import type { Guard, Verdict } from './allowlist.js';

const any = '*';
const allowed: Verdict = { allow: true };
const hint = 'change the tools of this server in the configuration';

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
    return reason === undefined ? allowed : { allow: false, reason, hint };
  };
