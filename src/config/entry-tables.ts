/**
 * The tables of the configuration: a mistake in one entry of a table disables that entry and no other. A mistake anywhere else
 * concerns all of the configuration.
 */
export const entryTables = [
  ...(['mcpServers', 'groups', 'keys', 'roles'] as const),
  ...(['budgets.principals', 'budgets.roles'] as const),
] as const;

export type EntryTable = (typeof entryTables)[number];

export const isEntryTable = (path: string): path is EntryTable => (entryTables as readonly string[]).includes(path);
