/**
 * Schema of `tools` in the entry of a server: the offered tools and their names.
 * Not here: roles (host-config.ts), enforcing the rules (policy/allowlist.ts).
 * Invariant: no two renamed tools have the same name.
 */
import * as z from 'zod/mini';

const listMax = 10_000;
const nameCharsMax = 512;
const toolName = z
  .string('must be the name of a tool')
  .check(z.minLength(1, 'must not be empty'), z.maxLength(nameCharsMax, 'is too long'));
const toolNames = z
  .array(toolName, 'must be a list of tools')
  .check(z.maxLength(listMax, `has more than ${listMax} entries`));
/** Valid for every client, also with the name of the server as a prefix. */
const shownName = z
  .string('must be a text')
  .check(z.regex(/^[A-Za-z0-9_.-]{1,64}$/, 'use 1 to 64 letters, digits, dots, dashes or underscores'));

export const toolRules = z.strictObject({
  allow: z.optional(toolNames),
  deny: z._default(toolNames, []),
  rename: z._default(z.record(toolName, shownName), {}),
});

export interface ToolRules {
  /** Allowed tools; undefined allows all. `*` at the end of a name matches any suffix. */
  readonly allow: readonly string[] | undefined;
  /** Denied tools, even if `allow` contains them. */
  readonly deny: readonly string[];
  /** Name for clients, by the name that the server uses. */
  readonly rename: Readonly<Record<string, string>>;
}

/** Returns the name of the tool for clients. */
export const renamed = ({ rename }: ToolRules, tool: string): string =>
  Object.hasOwn(rename, tool) ? (rename[tool] as string) : tool;

export const noToolRules: ToolRules = Object.freeze({ allow: undefined, deny: [], rename: {} });

/** Throws the error that `wrong` returns for the first mistake. */
export function toolRulesOf(
  { allow, deny, rename }: z.infer<typeof toolRules>,
  wrong: (field: string, what: string) => Error,
): ToolRules {
  // Most servers have no rules and share one object.
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
