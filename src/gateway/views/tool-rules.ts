/**
 * What the operator lets be seen of a server's tools, and under which names: `tools { allow, deny, rename }` of its entry.
 * Not here: who may call a tool (policy/allowlist.ts).
 * Invariant: deny wins over allow, and both speak of the names that the server itself uses.
 */
import type { ServerDefinition } from '../../config/server-definition.js';

export interface ToolRules {
  /** Names, with `*` at their end or alone. Absent: all. */
  readonly allow?: readonly string[] | undefined;
  readonly deny?: readonly string[] | undefined;
  /** The server's name of a tool → the one it is shown under. */
  readonly rename?: Readonly<Record<string, string>> | undefined;
}

export const toolRulesOf = (definition: ServerDefinition): ToolRules | undefined =>
  (definition as { readonly tools?: ToolRules }).tools;

export function isToolOffered(rules: ToolRules | undefined, tool: string): boolean {
  if (!rules) return true;
  if (rules.deny?.some((pattern) => matches(pattern, tool))) return false;
  return rules.allow?.some((pattern) => matches(pattern, tool)) ?? true;
}

export function renamed(rules: ToolRules | undefined, tool: string): string {
  const names = rules?.rename;
  return names && Object.hasOwn(names, tool) ? (names[tool] as string) : tool;
}

const matches = (pattern: string, tool: string): boolean =>
  pattern.endsWith('*') ? tool.startsWith(pattern.slice(0, -1)) : pattern === tool;
