/** Prints text and JSON to stdout, both neutralised; formats tables and durations. */
import { neutralise, neutraliseJson } from '../../kernel/terminal-text.js';

export const printText = (text: string): void => void process.stdout.write(`${neutralise(text)}\n`);
export const printJson = (value: unknown): void => printJsonText(JSON.stringify(value));
export const printJsonText = (json: string): void => void process.stdout.write(`${neutraliseJson(json)}\n`);

/** Some terminals report 0 columns. */
export const terminalWidth = ({ isTTY, columns }: Pick<NodeJS.WriteStream, 'isTTY' | 'columns'>): number =>
  isTTY ? columns || 80 : 200;

const cellCharsMax = 48;
const gap = '  ';

/** Aligns columns. Only the last one may be longer than `cellCharsMax`. */
export function textTable(rows: readonly (readonly string[])[], widthMax = 200): string {
  const columns = Math.max(0, ...rows.map((row) => row.length));
  const widths = Array.from({ length: columns }, (_, at) =>
    Math.min(cellCharsMax, Math.max(...rows.map((row) => (row[at] ?? '').length))),
  );
  return rows
    .map((row) => {
      const cells = row.map((cell, at) =>
        at === columns - 1 ? cell : cut(cell, cellCharsMax).padEnd(widths[at] ?? 0),
      );
      return cut(cells.join(gap).trimEnd(), Math.max(widthMax, 40));
    })
    .join('\n');
}

const cut = (text: string, chars: number): string => (text.length > chars ? `${text.slice(0, chars - 1)}…` : text);

/** Formats a duration with at most two units: `3d 4h`, `2m 5s`, `850ms`. */
export function formatDuration(durationMs: number): string {
  const ms = Math.max(0, Math.round(durationMs));
  if (ms < 1_000) return `${ms}ms`;
  const s = Math.round(ms / 1_000);
  if (s < 60) return `${s}s`;
  const m = Math.floor(s / 60);
  if (m < 60) return twoUnits(m, 'm', s % 60, 's');
  const h = Math.floor(m / 60);
  return h < 24 ? twoUnits(h, 'h', m % 60, 'm') : twoUnits(Math.floor(h / 24), 'd', h % 24, 'h');
}

const twoUnits = (large: number, unit: string, small: number, smaller: string): string =>
  small === 0 ? `${large}${unit}` : `${large}${unit} ${small}${smaller}`;
