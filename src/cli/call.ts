/**
 * `hostler call`: calls one tool, prints the answer to stdout and sets the exit code.
 * Invariant: arguments given as JSON reach the server byte for byte.
 */
import { parseDuration } from '../config/values.js';
import { HostError } from '../kernel/errors.js';
import { type Command, dataDirOption } from './command.js';
import { withControlClient } from './control/with-control-client.js';
import { EXIT } from './exit-codes.js';
import { printJsonText, printText } from './output/print.js';

const timeoutDefault = '30s';

export const call: Command = {
  name: 'call',
  usage: 'SERVER TOOL [JSON] [--arg k=v]... [--timeout 30s] [--json]',
  example: 'call memory search_nodes --arg query=hostler',
  options: {
    'arg=*': 'one argument: JSON if it is valid JSON, else text',
    'timeout=': 'time limit of the call, like 30s',
    json: 'print the result as the server wrote it',
    ...dataDirOption,
  },
  positionals: [2, 3],
  run(args) {
    const [server, tool, json] = args.positionals;
    const text = argumentsText(json, args.all('arg'));
    const deadlineMs = parseDuration(args.text('timeout') ?? timeoutDefault, '--timeout');
    return withControlClient(args, async (client) => {
      let answer = '';
      const request = { server, tool, args: text, deadlineMs };
      const result = await client.request('call', request, (piece) => (answer += String(piece)));
      if (args.has('json')) printJsonText(answer);
      else printText(answerText(answer));
      return (result as { isError?: boolean } | null)?.isError ? EXIT.failed : EXIT.done;
    });
  },
};

/** `options` override members of `json`. */
export function argumentsText(json: string | undefined, options: readonly string[]): string {
  const written = json === undefined ? undefined : objectOf(json);
  if (options.length === 0) return json ?? '{}';
  const given = options.map((option): [string, unknown] => {
    const at = option.indexOf('=');
    if (at < 1) throw invalid('--arg needs a name and a value', 'write --arg name=value');
    return [option.slice(0, at), valueOfText(option.slice(at + 1))];
  });
  return JSON.stringify({ ...written, ...Object.fromEntries(given) });
}

function objectOf(json: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(json);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch {
    // The error is thrown below.
  }
  throw invalid(
    'the arguments are not a JSON object',
    `write them like '{"message":"hello"}', or use --arg message=hello`,
  );
}

function valueOfText(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

const invalid = (what: string, hint: string): HostError =>
  new HostError('invalid_spec', what, { field: 'arguments', reason: 'usage', hint });

interface Content {
  readonly type?: string;
  readonly text?: string;
  readonly mimeType?: string;
  readonly uri?: string;
}

/** Text content is returned unchanged; other content is replaced by its type. */
export function answerText(json: string): string {
  const { content, structuredContent } = JSON.parse(json) as { content?: unknown; structuredContent?: unknown };
  const parts = Array.isArray(content) ? (content as Content[]) : [];
  if (parts.length === 0) return JSON.stringify(structuredContent ?? {}, null, 2);
  return parts.map((part) => (part?.type === 'text' ? String(part.text) : otherText(part))).join('\n');
}

const otherText = ({ type, mimeType, uri }: Content): string =>
  `[${[type, mimeType ?? uri].filter((part) => part !== undefined).join(' ')}]`;
