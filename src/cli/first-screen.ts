/**
 * What a person sees when Hostler serves: where, which servers and how they are, and what to paste into a client.
 * Invariants: the key is shown in full only when it was just made; everything from the configuration is neutralised.
 */
import type { StatusRow } from '../host/status.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { noteOf, stateWord } from './status-table.js';
import { textTable } from './text-table.js';

export interface FirstScreen {
  readonly version: string;
  /** Undefined: it serves one client over stdio. */
  readonly url: string | undefined;
  readonly config: string;
  readonly dataDir: string;
  readonly rows: readonly StatusRow[];
  readonly key: { readonly text: string; readonly isNew: boolean; readonly file: string } | undefined;
  readonly width: number;
}

const pathChars = 300;

export function firstScreen(screen: FirstScreen): string {
  const { version, url, config, rows, width, dataDir } = screen;
  return [
    `hostler ${version}  ${url ?? 'over stdio'}`,
    `configuration ${neutraliseLine(config, pathChars)}`,
    `data in ${neutraliseLine(dataDir, pathChars)}`,
    '',
    serversText(rows, width),
    ...(url === undefined ? [] : ['', clientText(url, screen.key)]),
    '',
    'Ctrl-C stops everything. Elsewhere: hostler status, hostler tools, hostler why SERVER.',
  ].join('\n');
}

/** One line when nobody looks at a terminal. */
export const firstLine = ({
  version,
  url,
  servers,
  key,
}: Pick<FirstScreen, 'version' | 'url' | 'key'> & { readonly servers: number }): string =>
  `hostler ${version} serves ${servers} ${servers === 1 ? 'server' : 'servers'} ${url === undefined ? 'over stdio' : `at ${url}`}${
    key === undefined ? '' : `; the key is in ${key.file}`
  }`;

function serversText(rows: readonly StatusRow[], width: number): string {
  if (rows.length === 0) return 'no servers are configured: add some under mcpServers, the file is watched';
  return textTable(
    rows.map((row) => [
      `  ${row.name}`,
      stateWord(row.state),
      row.tools === 0 ? '' : `${row.tools} ${row.tools === 1 ? 'tool' : 'tools'}`,
      noteOf(row),
    ]),
    width,
  );
}

/** The key itself while it is new; afterwards a shell reads it from where it lies. */
function clientText(url: string, key: FirstScreen['key']): string {
  const shown = key === undefined || key.isNew ? key?.text : `$(cat ${quoted(key.file)})`;
  const header = shown === undefined ? '' : ` --header "Authorization: Bearer ${shown}"`;
  const inJson = key === undefined ? undefined : key.isNew ? key.text : '<the key>';
  const entry = {
    type: 'http',
    url,
    ...(inJson === undefined ? {} : { headers: { Authorization: `Bearer ${inJson}` } }),
  };
  return [
    'Connect a client:',
    `  claude mcp add --transport http hostler ${url}${header}`,
    `  ${JSON.stringify({ mcpServers: { hostler: entry } })}`,
    ...(key === undefined
      ? ['No key is needed: whoever is on this machine may use it.']
      : [`The key is kept in ${neutraliseLine(key.file, pathChars)}${key.isNew ? ' and is not shown again' : ''}.`]),
  ].join('\n');
}

const quoted = (file: string): string => (/^[\w./@%+-]+$/.test(file) ? file : `'${file.replaceAll("'", `'\\''`)}'`);
