/** Prints text and JSON, both neutralised; formats ages and sizes. */
import { formatDuration } from '../../kernel/duration.js';
import { neutralise, neutraliseJson } from '../../kernel/terminal-text.js';
import { type Line, paint, screenOf } from './styled.js';

/** Version of all shapes that `hostler schema` lists. Members may be added to a shape; other changes need a new version. */
const shapeVersion = 1;

type Output = Pick<NodeJS.WriteStream, 'write' | 'isTTY' | 'columns'>;

export const printText = (text: string): void => void process.stdout.write(`${neutralise(text)}\n`);
export const printJson = (value: object): void => printJsonText(JSON.stringify({ ...value, v: shapeVersion }));
export const printJsonText = (json: string): void => void process.stdout.write(`${neutraliseJson(json)}\n`);

export function printLines(lines: readonly Line[], output: Output = process.stdout): void {
  const screen = screenOf(output);
  output.write(`${lines.map((line) => paint(line, screen)).join('\n')}\n`);
}

/** A time in the past, as people say it: `just now`, `5m ago`, `3d ago`. */
export function ago(durationMs: number): string {
  if (durationMs < 2_000) return 'just now';
  return `${formatDuration(durationMs).split(' ')[0]} ago`;
}

export const formatSize = (bytes: number): string =>
  bytes < 1_000 ? `${bytes} B` : bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;

export const counted = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? '' : 's'}`;
