/** `hostler logs`: prints the events of one server or of all, and their stderr, once or until Ctrl-C. */
import { systemClock } from '../kernel/clock.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { type Command, hostOptions, jsonOption, type ParsedArgs, usageError } from './command.js';
import { untilInterrupted } from './control/control-client.js';
import { withControlClient } from './control/with-control-client.js';
import { EXIT } from './exit-codes.js';
import { printJson, printLines } from './output/print.js';
import { type Line, span } from './output/styled.js';
import type { LogLine } from './up/server-logs.js';

const lineChars = 4_096;

export const logs: Command = {
  name: 'logs',
  usage: '[SERVER] [--since 10m] [--tail N] [--follow] [--json]',
  example: 'logs memory --tail 50 --follow',
  options: {
    'since=': 'only lines of the last 10m or 3d, or since a date',
    'tail|n=': 'only the last N lines',
    'follow|f': 'keep printing until Ctrl-C',
    ...jsonOption,
    ...hostOptions,
  },
  positionals: [0, 1],
  run(args) {
    const [server] = args.positionals;
    const follow = args.has('follow');
    const request = { server, follow, since: sinceOf(args.text('since')), tail: tailOf(args) };
    const all: LogLine[] = [];
    const onLine = (line: unknown) => {
      if (args.has('json') && follow) printJson(line as LogLine);
      else if (args.has('json')) all.push(line as LogLine);
      else printLines([render(line as LogLine, server === undefined)]);
    };
    return withControlClient(args, 'show', async (client) => {
      await untilInterrupted(client, client.request('logs', request, onLine));
      if (args.has('json') && !follow) printJson({ lines: all });
      return EXIT.done;
    });
  },
};

function render({ at, server, from, text }: LogLine, isOfAll: boolean): Line {
  const shown = neutraliseLine(text, lineChars);
  return [...(isOfAll ? [span('name', server), ' '] : []), span('dim', `${at} ${from.padEnd(7)} | `), shown];
}

const unitsMs: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Returns the time as ISO 8601, which can be compared with the times of lines as text. */
function sinceOf(text: string | undefined): string | undefined {
  if (text === undefined) return undefined;
  const [, count, unit = ''] = /^(\d{1,6}(?:\.\d{1,3})?)(ms|s|m|h|d)$/.exec(text) ?? [];
  const nowMs = systemClock.date().getTime();
  const date = new Date(count === undefined ? text : nowMs - Number(count) * (unitsMs[unit] ?? 0));
  if (!Number.isNaN(date.getTime()) && (count !== undefined || /^\d{4}-/.test(text))) return date.toISOString();
  const what = `--since: '${neutraliseLine(text, 40)}' is not a time`;
  throw usageError(logs, what, 'write a time span like 30s, 10m, 2h or 3d, or a date and time like 2026-11-19T08:00');
}

function tailOf(args: ParsedArgs): number | undefined {
  const text = args.text('tail');
  if (text === undefined) return undefined;
  if (!/^\d{1,6}$/.test(text)) throw usageError(logs, `--tail: '${text.slice(0, 40)}' is not a number of lines`);
  return Number(text);
}
