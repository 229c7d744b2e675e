/** Formats status rows as a table. */
import type { StatusRow } from '../../host/status.js';
import { formatDuration } from '../../kernel/duration.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import { ago, counted } from './print.js';
import { stateSpan } from './states.js';
import { flow, type Line, type Piece, type Screen, span } from './styled.js';
import { table } from './table.js';

const errorChars = 400;

export function statusTable(rows: readonly StatusRow[], screen: Screen): Line[] {
  if (rows.length === 0) return ['no servers are configured'];
  const head = ['SERVER', 'STATE', 'FOR', 'TOOLS', 'CALLS', 'PID', 'NOTE'].map((name) => span('dim', name));
  return table([head, ...rows.map(cells)], screen);
}

/** `4 servers: 2 ready, 1 asleep, 1 parked; 37 tools; 12 calls` */
export function totalsLine(rows: readonly StatusRow[]): Line {
  const states = new Map<string, number>();
  for (const row of rows) states.set(stateSpan(row).text, (states.get(stateSpan(row).text) ?? 0) + 1);
  const sum = (of: (row: StatusRow) => number): number => rows.reduce((total, row) => total + of(row), 0);
  const parts = [...states].map(([state, count]) => `${count} ${state}`);
  return span(
    'dim',
    `${counted(rows.length, 'server')}: ${parts.join(', ')}; ${counted(
      sum(({ tools }) => tools),
      'tool',
    )}; ${counted(
      sum(({ calls }) => calls),
      'call',
    )}`,
  );
}

const cells = (row: StatusRow): Piece[] => [
  row.name,
  stateSpan(row),
  formatDuration(row.forMs),
  String(row.tools),
  callsText(row),
  String(row.pid ?? '-'),
  noteOf(row),
];

/** The number of all calls since the start, and of the calls that run or wait now. */
function callsText({ calls, running, queue }: StatusRow): string {
  const now = [running > 0 ? `${running} now` : '', queue > 0 ? `${queue} waiting` : ''].filter(Boolean).join(', ');
  return now === '' ? String(calls) : `${calls} (${now})`;
}

/** The most important note is first, because the end of the line may be cut. */
export function noteOf(row: StatusRow): string {
  const login = row.auth?.next;
  // A person has to log in, so the error and the next try add nothing.
  if (row.state === 'auth_required' && login !== undefined) return login;
  const notes = [
    login ?? '',
    row.nextProbeInMs === undefined ? '' : `next try in ${formatDuration(row.nextProbeInMs)}`,
    row.ejected ? 'not tried again before a reload' : '',
    row.circuit === 'closed' ? '' : `breaker ${row.circuit}`,
    row.throttledForMs === undefined ? '' : `throttled for ${formatDuration(row.throttledForMs)}`,
    row.toolsError === undefined
      ? ''
      : `${row.tools === 0 ? 'no tools' : 'tools of an earlier list'}: ${shownError(row, row.toolsError)}`,
    // An older host sends no notes.
    ...(row.notes ?? []).map((note) => neutraliseLine(note, errorChars)),
    unroutedNote(row),
    row.escaped > 0 ? `${row.escaped} processes escaped` : '',
    row.noisy ? 'noisy' : '',
    row.unattributed ? `${row.unattributed} messages reached no client: set isolation: per-client` : '',
    row.active || !row.lastError ? '' : shownError(row, row.lastError.message),
  ];
  return notes.filter((note) => note !== '').join('; ');
}

/** The command to type, on a line of its own: the note that names it is often cut. */
export function approvalLines(rows: readonly StatusRow[]): Line[] {
  const waiting = rows.filter(({ notes }) => notes?.some((note) => note.includes(': hostler approve '))).length;
  const have = waiting === 1 ? 'server has' : 'servers have';
  return waiting === 0 ? [] : [span('busy', `! ${waiting} ${have} tools that wait for approval: hostler approve`)];
}

/** Removes the name of the server from the start of a message, because the row already has it. */
function shownError({ name, label }: StatusRow, message: string): string {
  const prefixes = [`server '${name}'`, `mcpServers.${label ?? name}`];
  const prefix = prefixes.find((each) => message.startsWith(each) && /^[:. ]/.test(message.slice(each.length))) ?? '';
  const rest = prefix === '' ? message : message.slice(prefix.length).replace(/^(?:: |\.| )/, '');
  return neutraliseLine(rest, errorChars);
}

/** Everything about one server, a fact on each line. */
export function serverLines(row: StatusRow, screen: Screen): Line[] {
  const { name, problem } = row;
  const lastError = isRefusal(row) ? undefined : row.lastError;
  const since = (ms: number | undefined) => (ms === undefined ? '' : ago(ms));
  const facts: (readonly [string, Piece])[] = [
    ['state', stateSpan(row)],
    ['since', `${row.since} (${formatDuration(row.forMs)})`],
    ['note', noteOf(withoutHint(row))],
    ['to do', problem?.hint ?? ''],
    ['tools', String(row.tools)],
    ['calls', callsText(row)],
    ['last answer', since(row.lastSuccessAgoMs)],
    [
      'last error',
      lastError ? `${shownError(row, lastError.message)} [${lastError.code}], ${ago(lastError.agoMs)}` : '',
    ],
    ['restarts', row.restartCount === 0 ? '' : String(row.restartCount)],
    ['breaker', `${row.circuit}, ${row.consecutiveFailures} failures in a row`],
    ['transport', `${row.transport}${row.protocolVersion === undefined ? '' : `, MCP ${row.protocolVersion}`}`],
    ['account', row.authIdentity ?? ''],
    ['process', row.pid ? `${row.pid}, ${formatDuration(row.uptimeMs ?? 0)} old` : ''],
    ['more', span('name', `hostler logs ${name}   hostler why ${name}   hostler tools ${name}`)],
  ];
  const width = Math.max(...facts.map(([label]) => label.length));
  const shown = facts.filter(([, text]) => text !== '');
  return [
    span('strong', name),
    ...shown.flatMap(([label, text]) => flow([span('dim', `  ${label.padEnd(width)}  `), text], screen, width + 4)),
  ];
}

/** True if the last error is the problem of a refused entry with its hint. Both are already shown, in the lines `note` and `to do`. */
const isRefusal = ({ active, problem, lastError }: StatusRow): boolean =>
  !active && problem !== undefined && lastError?.message.startsWith(problem.message) === true;

const withoutHint = (row: StatusRow): StatusRow =>
  row.problem && row.lastError && isRefusal(row)
    ? { ...row, lastError: { ...row.lastError, message: row.problem.message } }
    : row;

function unroutedNote({ unroutedTemplates: unrouted }: StatusRow): string {
  if (!unrouted) return '';
  const [first] = unrouted.templates;
  return `${unrouted.count} resource templates not routed at /mcp, such as ${first?.template} (${first?.reason})`;
}
