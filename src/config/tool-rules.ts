/**
 * `tools` of a server's entry: which of its tools there are for anybody at all, and what they are called outside.
 * Not here: who may use them (roles in host-config.ts), acting on it (policy/tool-rules-guard.ts, the gateway's names).
 *
 * Invariant: no two tools that are named here get the same name.
 */
import { z } from 'zod';

const listMax = 10_000;
const nameCharsMax = 512;
const toolName = z.string('must be the name of a tool').min(1, 'must not be empty').max(nameCharsMax, 'is too long');
const toolNames = z.array(toolName, 'must be a list of tools').max(listMax, `has more than ${listMax} entries`);
/** What every client can take for a name, with room for the server's in front of it. */
const shownName = z
  .string('must be a text')
  .regex(/^[A-Za-z0-9_.-]{1,64}$/, 'use 1 to 64 letters, digits, dots, dashes or underscores');

export const toolRules = z.strictObject({
  allow: toolNames.optional(),
  deny: toolNames.default([]),
  rename: z.record(toolName, shownName).default({}),
});

export interface ToolRules {
  /** Undefined: all of them. A `*` at the end of a name stands for whatever follows. */
  readonly allow: readonly string[] | undefined;
  /** Counts more than `allow`. */
  readonly deny: readonly string[];
  /** The server's own name of a tool → the one that clients see. */
  readonly rename: Readonly<Record<string, string>>;
}

/** What clients see the tool as. */
export const renamed = ({ rename }: ToolRules, tool: string): string =>
  Object.hasOwn(rename, tool) ? (rename[tool] as string) : tool;

export const noToolRules: ToolRules = Object.freeze({ allow: undefined, deny: [], rename: {} });

/** Throws what `wrong` makes of the first mistake. */
export function toolRulesOf(
  { allow, deny, rename }: z.infer<typeof toolRules>,
  wrong: (field: string, what: string) => Error,
): ToolRules {
  // Nearly every server: they share one object that says nothing.
  if (allow === undefined && deny.length === 0 && Object.keys(rename).length === 0) return noToolRules;
  const taken = new Map<string, string>();
  for (const [tool, shown] of Object.entries(rename)) {
    const other = taken.get(shown);
    if (other !== undefined) throw wrong(`tools.rename.${tool}`, `'${shown}' is already the name of '${other}'`);
    taken.set(shown, tool);
  }
  return Object.freeze({
    allow: allow && Object.freeze(allow),
    deny: Object.freeze(deny),
    rename: Object.freeze(rename),
  });
}
