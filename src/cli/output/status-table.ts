/** Formats status rows as a table. */
import type { StatusRow } from '../../host/status.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import { formatDuration } from './print.js';
import { stateSpan } from './states.js';
import { type Line, type Piece, type Screen, span } from './styled.js';
import { table } from './table.js';

const errorChars = 120;

export function statusTable(rows: readonly StatusRow[], screen: Screen): Line[] {
  if (rows.length === 0) return ['no servers are configured'];
  const head = ['SERVER', 'STATE', 'FOR', 'TOOLS', 'CALLS', 'PID', 'NOTE'].map((name) => span('dim', name));
  return table([head, ...rows.map(cells)], screen);
}

const cells = (row: StatusRow): Piece[] => [
  row.name,
  stateSpan(row),
  formatDuration(row.forMs),
  String(row.tools),
  row.running + row.queue === 0 ? '-' : `${row.running}${row.queue > 0 ? `+${row.queue}` : ''}`,
  String(row.pid ?? '-'),
  noteOf(row),
];

/** The most important note is first, because the end of the line may be cut. */
export function noteOf(row: StatusRow): string {
  const notes = [
    row.nextProbeInMs === undefined ? '' : `next try in ${formatDuration(row.nextProbeInMs)}`,
    row.ejected ? 'not tried again before a reload' : '',
    row.circuit === 'closed' ? '' : `breaker ${row.circuit}`,
    row.throttledForMs === undefined ? '' : `throttled for ${formatDuration(row.throttledForMs)}`,
    row.toolsError === undefined ? '' : neutraliseLine(row.toolsError, errorChars),
    row.changedTools > 0 ? `${row.changedTools} tools changed` : '',
    // An older host sends none.
    ...(row.notes ?? []).map((note) => neutraliseLine(note, errorChars)),
    unroutedNote(row),
    row.escaped > 0 ? `${row.escaped} processes escaped` : '',
    row.noisy ? 'noisy' : '',
    row.unattributed ? `${row.unattributed} messages reached no client: set isolation: per-client` : '',
    row.active || !row.lastError ? '' : neutraliseLine(row.lastError.message, errorChars),
  ];
  return notes.filter((note) => note !== '').join('; ');
}

function unroutedNote({ unroutedTemplates: unrouted }: StatusRow): string {
  if (!unrouted) return '';
  const [first] = unrouted.templates;
  return `${unrouted.count} resource templates not routed at /mcp, such as ${first?.template} (${first?.reason})`;
}
