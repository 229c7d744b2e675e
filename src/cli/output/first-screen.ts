/**
 * Text that `hostler up` prints when it serves: its address, the servers and their states, and the configuration for a client.
 * Invariants: the key is shown in full only when it was just created; text of the configuration is neutralised.
 */
import type { StatusRow } from '../../host/status.js';
import { quoted } from '../../kernel/shell-word.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import { counted } from './print.js';
import { stateSpan } from './states.js';
import { approvalLines, noteOf, totalsLine } from './status-table.js';
import { type Line, type Screen, span } from './styled.js';
import { table } from './table.js';

export interface FirstScreen {
  readonly version: string;
  /** Undefined if Hostler serves only stdio. */
  readonly url: string | undefined;
  readonly config: string;
  readonly dataDir: string;
  readonly rows: readonly StatusRow[];
  readonly key: { readonly text: string; readonly isNew: boolean; readonly file: string } | undefined;
  readonly screen: Screen;
}

const pathChars = 300;
/** With more servers, only those that start, fail or have a note are shown. */
const rowsMax = 12;
const quietStates: readonly StatusRow['state'][] = ['ready', 'registered', 'stopped', 'disabled'];

/** The whole screen, for a terminal that is not redrawn. */
export const firstScreen = (facts: FirstScreen): Line[] => [...firstLines(facts), '', ...upBlock(facts).flat()];

/** The part of the screen that does not change while Hostler runs. */
export function firstLines({ version, url, config, dataDir, key }: FirstScreen): Line[] {
  return [
    `hostler ${version}  ${url ?? 'over stdio'}`,
    `configuration ${neutraliseLine(config, pathChars)}`,
    `data in ${neutraliseLine(dataDir, pathChars)}`,
    ...(url === undefined ? [] : ['', ...clientLines(url, key)]),
  ];
}

/** The servers and their totals, which `hostler up` draws again when they change. */
export function upBlock({ rows, screen }: Pick<FirstScreen, 'rows' | 'screen'>): [servers: Line[], foot: Line[]] {
  const learnt = rows.filter(isLearning).length;
  const totals =
    learnt === 0
      ? totalsLine(rows)
      : span('busy', `learning the tools of ${learnt} of ${counted(rows.length, 'server')}`);
  return [
    serverLines(rows, screen),
    [
      ...(rows.length === 0 ? [] : ['', totals]),
      ...approvalLines(rows),
      'Ctrl-C stops everything. Elsewhere: hostler status, tools, logs, why SERVER.',
    ],
  ];
}

export const isLearning = ({ state, tools }: StatusRow): boolean => state === 'connecting' && tools === 0;

/** One line that replaces the screen if stderr is not a terminal. */
export const firstLine = ({
  version,
  url,
  servers,
  key,
}: Pick<FirstScreen, 'version' | 'url' | 'key'> & { readonly servers: number }): string =>
  `hostler ${version} serves ${servers} ${servers === 1 ? 'server' : 'servers'} ${url === undefined ? 'over stdio' : `at ${url}`}${
    key === undefined || url === undefined ? '' : `; the key is in ${key.file}`
  }`;

function serverLines(rows: readonly StatusRow[], screen: Screen): Line[] {
  if (rows.length === 0) return ['no servers are configured: add some under mcpServers, the file is watched'];
  const notable = rows.length <= rowsMax ? rows : rows.filter(isNotable);
  const shown = notable.slice(0, rowsMax);
  const cells = shown.map((row) => [
    `  ${row.name}`,
    stateSpan(row),
    row.tools === 0 ? '' : counted(row.tools, 'tool'),
    noteOf(row),
  ]);
  const left = rows.length - shown.length;
  return [...table(cells, screen), ...(left === 0 ? [] : [span('dim', `  … ${left} more: hostler status`)])];
}

const isNotable = (row: StatusRow): boolean => !quietStates.includes(row.state) || noteOf(row) !== '';

/** Prints a new key in full. For an existing key, the printed command reads it from the key file. */
function clientLines(url: string, key: FirstScreen['key']): string[] {
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
      ? ['No key is needed: every user of this machine may use it.']
      : [`The key is stored in ${neutraliseLine(key.file, pathChars)}${key.isNew ? ' and is not shown again' : ''}.`]),
  ];
}
