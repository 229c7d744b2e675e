/** Formats status rows as a table. */
import type { StatusRow } from '../../host/status.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import { formatDuration, textTable } from './print.js';

const errorChars = 120;

/** Texts for states whose internal name is unclear to a user. */
const stateTexts: Readonly<Partial<Record<StatusRow['state'], string>>> = {
  registered: 'asleep',
  connecting: 'starting',
  backing_off: 'restarting',
  auth_required: 'needs login',
};

export const stateText = (state: StatusRow['state']): string => stateTexts[state] ?? state;

export function statusTable(rows: readonly StatusRow[], width?: number): string {
  if (rows.length === 0) return 'no servers are configured';
  const head = ['SERVER', 'STATE', 'FOR', 'TOOLS', 'CALLS', 'PID', 'NOTE'];
  return textTable([head, ...rows.map(cells)], width);
}

const cells = (row: StatusRow): string[] => [
  row.name,
  stateText(row.state),
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
