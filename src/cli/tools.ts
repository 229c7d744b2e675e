/** `hostler tools`: what can be called, as far as it is known; nothing is started for it. */
import { neutraliseLine } from '../kernel/terminal-text.js';
import type { Words } from './command.js';
import { EXIT } from './exit-codes.js';
import { printJson, printText, widthOf } from './print.js';
import { withRunning } from './running.js';
import { textTable } from './text-table.js';

interface InputSchema {
  readonly properties?: Readonly<Record<string, unknown>>;
  readonly required?: readonly string[];
}

interface ToolFrame {
  readonly server: string;
  readonly tool?: string;
  readonly state?: string;
  readonly pin?: string;
  /** The whole tool. */
  readonly schema?: { readonly inputSchema?: InputSchema };
  readonly error?: { readonly code?: string; readonly message?: string };
}

const argumentsChars = 120;

export function tools(words: Words): Promise<number> {
  const server = words.text('server');
  return withRunning(words, async (client) => {
    const found: ToolFrame[] = [];
    await client.ask('tools', server === undefined ? {} : { server }, (frame) => found.push(frame as ToolFrame));
    if (words.has('json'))
      printJson({ tools: found.filter(({ tool }) => tool !== undefined), failed: found.filter(isFailed) });
    else printText(table(found));
    return EXIT.done;
  });
}

const isFailed = ({ tool }: ToolFrame): boolean => tool === undefined;

function table(found: readonly ToolFrame[]): string {
  const rows = found.map((frame) =>
    frame.tool === undefined
      ? [frame.server, '-', `not known: ${neutraliseLine(String(frame.error?.message), argumentsChars)}`]
      : [frame.server, `${neutraliseLine(frame.tool, 64)}${pinMark(frame)}`, argumentsOf(frame)],
  );
  if (rows.length === 0) return 'no tools are known';
  return textTable([['SERVER', 'TOOL', 'ARGUMENTS'], ...rows], widthOf(process.stdout));
}

const pinMark = ({ pin = 'approved' }: ToolFrame): string => (pin === 'approved' ? '' : ` (${pin})`);

/** Optional arguments are in brackets. */
function argumentsOf({ schema }: ToolFrame): string {
  const { properties, required } = schema?.inputSchema ?? {};
  if (typeof properties !== 'object' || properties === null) return '';
  const isNeeded = (name: string) => Array.isArray(required) && required.includes(name);
  const names = Object.keys(properties).map((name) => (isNeeded(name) ? name : `[${name}]`));
  return neutraliseLine(names.join(' '), argumentsChars);
}
