/** `hostler tools`: prints the known tools; starts no server. */
import { neutraliseLine } from '../kernel/terminal-text.js';
import { type Command, dataDirOption, jsonOption } from './command.js';
import { withControlClient } from './control/with-control-client.js';
import { EXIT } from './exit-codes.js';
import { printJson, printLines } from './output/print.js';
import { type Line, screenOf } from './output/styled.js';
import { table } from './output/table.js';

interface InputSchema {
  readonly properties?: Readonly<Record<string, unknown>>;
  readonly required?: readonly string[];
}

interface ToolFrame {
  readonly server: string;
  readonly tool?: string;
  readonly state?: string;
  readonly pin?: string;
  /** The whole tool, not only its input schema. */
  readonly schema?: { readonly inputSchema?: InputSchema };
  readonly error?: { readonly code?: string; readonly message?: string };
}

const argumentsChars = 120;

export const tools: Command = {
  name: 'tools',
  usage: '[--server S] [--json]',
  example: 'tools --server memory',
  options: { 'server=': 'only the tools of this server', ...jsonOption, ...dataDirOption },
  positionals: [0, 0],
  run(args) {
    const server = args.text('server');
    return withControlClient(args, async (client) => {
      const found: ToolFrame[] = [];
      await client.request('tools', server === undefined ? {} : { server }, (frame) => found.push(frame as ToolFrame));
      if (args.has('json'))
        printJson({ tools: found.filter(({ tool }) => tool !== undefined), failed: found.filter(isFailed) });
      else printLines(toolLines(found));
      return EXIT.done;
    });
  },
};

const isFailed = ({ tool }: ToolFrame): boolean => tool === undefined;

function toolLines(found: readonly ToolFrame[]): Line[] {
  const rows = found.map((frame) =>
    frame.tool === undefined
      ? [frame.server, '-', `not known: ${neutraliseLine(String(frame.error?.message), argumentsChars)}`]
      : [frame.server, `${neutraliseLine(frame.tool, 64)}${pinMark(frame)}`, argumentsOf(frame)],
  );
  if (rows.length === 0) return ['no tools are known'];
  return table([['SERVER', 'TOOL', 'ARGUMENTS'], ...rows], screenOf(process.stdout));
}

const pinMark = ({ pin = 'approved' }: ToolFrame): string => (pin === 'approved' ? '' : ` (${pin})`);

/** Puts optional arguments in brackets. */
function argumentsOf({ schema }: ToolFrame): string {
  const { properties, required } = schema?.inputSchema ?? {};
  if (typeof properties !== 'object' || properties === null) return '';
  const isNeeded = (name: string) => Array.isArray(required) && required.includes(name);
  const names = Object.keys(properties).map((name) => (isNeeded(name) ? name : `[${name}]`));
  return neutraliseLine(names.join(' '), argumentsChars);
}
