/** `hostler tools`: prints the known tools with sizes, descriptions, signatures or schemas. A running Hostler starts no server for it. */
import { neutraliseLine } from '../kernel/terminal-text.js';
import { isSchema } from './call/schema-types.js';
import { signatureOf } from './call/signature.js';
import { type Command, hostOptions, jsonOption, usageError } from './command.js';
import { withHost } from './control/with-host.js';
import { EXIT } from './exit-codes.js';
import { counted, formatSize, printJson, printLines } from './output/print.js';
import { type Line, type Piece, screenOf, span } from './output/styled.js';
import { table } from './output/table.js';

interface ToolFrame {
  readonly server: string;
  readonly tool?: string;
  readonly state?: string;
  readonly pin?: string;
  readonly bytes?: number;
  /** The whole tool, not only its input schema. */
  readonly schema?: { readonly inputSchema?: unknown; readonly description?: unknown };
  readonly error?: { readonly code?: string; readonly message?: string };
}

const nameChars = 128;
const textChars = 400;
/** Definitions of tools are mostly English text and JSON: about four bytes a token. */
const bytesPerToken = 4;

export const tools: Command = {
  name: 'tools',
  usage: '[SERVER] [--signatures | --schema] [--json]',
  example: 'tools memory --signatures',
  options: {
    'server=': 'only the tools of this server',
    signatures: 'print each tool with the types of its parameters',
    schema: 'print each tool as its server defines it, as JSON',
    ...jsonOption,
    ...hostOptions,
  },
  positionals: [0, 1],
  run(args) {
    const [server = args.text('server')] = args.positionals;
    if (args.has('signatures') && args.has('schema')) throw usageError(tools, 'choose --signatures or --schema');
    return withHost(args, async (client) => {
      const found: ToolFrame[] = [];
      await client.request('tools', server === undefined ? {} : { server }, (frame) => found.push(frame as ToolFrame));
      if (args.has('json') || args.has('schema'))
        printJson({ tools: found.filter(isTool), failed: found.filter((frame) => !isTool(frame)) });
      else if (found.length === 0) printLines(['no tools are known']);
      else printLines(args.has('signatures') ? found.map(signatureLine) : toolLines(found));
      return EXIT.done;
    });
  },
};

const isTool = ({ tool }: ToolFrame): boolean => tool !== undefined;

function toolLines(found: readonly ToolFrame[]): Line[] {
  const head = ['SERVER', 'TOOL', 'SIZE', 'DESCRIPTION'].map((name) => span('dim', name));
  return [...table([head, ...found.map(cells)], screenOf(process.stdout)), '', span('dim', totalOf(found))];
}

function cells(frame: ToolFrame): Piece[] {
  const { server, tool, bytes, schema } = frame;
  if (tool === undefined) return [server, '-', '-', unknownTools(frame)];
  return [
    server,
    `${neutraliseLine(tool, nameChars)}${pinMark(frame)}`,
    formatSize(bytes ?? 0),
    line(schema?.description),
  ];
}

const unknownTools = ({ error }: ToolFrame): Piece => span('bad', `not known: ${line(error?.message)}`);

/** Returns the first sentence or line of a text, on one line. */
const line = (text: unknown): string =>
  neutraliseLine(typeof text === 'string' ? (text.trim().split(/\n|(?<=\.) /)[0] ?? '') : '', textChars);

const pinMark = ({ pin = 'approved' }: ToolFrame): string => (pin === 'approved' ? '' : ` (${pin})`);

function totalOf(found: readonly ToolFrame[]): string {
  const known = found.filter(isTool);
  const bytes = known.reduce((sum, { bytes: own = 0 }) => sum + own, 0);
  const servers = new Set(known.map(({ server }) => server)).size;
  const tokens = Math.round(bytes / bytesPerToken).toLocaleString('en');
  return `${counted(known.length, 'tool')} of ${counted(servers, 'server')}, ${formatSize(bytes)}: about ${tokens} tokens`;
}

function signatureLine(frame: ToolFrame): Line {
  const { server, tool, schema } = frame;
  if (tool === undefined) return [`${server}: `, unknownTools(frame)];
  const input = isSchema(schema?.inputSchema) ? schema.inputSchema : {};
  return [span('dim', `${server}.`), signatureOf(tool, input)];
}
