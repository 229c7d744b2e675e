/**
 * `hostler call`: calls one tool, prints the answer to stdout and sets the exit code.
 * Not here: reading the arguments (call/arguments.ts).
 * Invariant: arguments given as JSON reach the server byte for byte.
 */
import { readFileSync } from 'node:fs';
import { parseDuration } from '../config/values.js';
import { HostError } from '../kernel/errors.js';
import { quoted } from '../kernel/shell-word.js';
import { argumentsText, isMember, missingArguments, writtenArguments } from './call/arguments.js';
import { isSchema, type Schema } from './call/schema-types.js';
import { exampleArguments, signatureOf } from './call/signature.js';
import { type Command, hostOptions } from './command.js';
import type { FoundTool, ToolWords } from './control/find-tool.js';
import { withHost } from './control/with-host.js';
import { EXIT } from './exit-codes.js';
import { formatSize, printJsonText, printLines, printText } from './output/print.js';
import { span } from './output/styled.js';

const timeoutDefault = '30s';
const stdinDescriptor = 0;

export const call: Command = {
  name: 'call',
  usage: 'SERVER.TOOL [k=v | k:=json | k=@file]... | SERVER TOOL [JSON | -] [--arg k=v]... [--timeout 30s] [--json]',
  example: 'call memory.search_nodes query=hostler',
  options: {
    'arg=*': 'one argument, converted by the schema of the tool',
    'timeout=': 'time limit of the call, like 30s',
    json: 'print the result as the server wrote it',
    ...hostOptions,
  },
  positionals: [1, Number.POSITIVE_INFINITY],
  run(args) {
    const { target, words } = targetOf(args.positionals);
    const given = words.map((word) => (word === '-' ? readText(stdinDescriptor) : word));
    const written = writtenArguments(given, args.all('arg'), readText);
    const deadlineMs = parseDuration(args.text('timeout') ?? timeoutDefault, '--timeout');
    return withHost(args, async (client) => {
      const found = (await client.request('tool', { ...target, deadlineMs })) as FoundTool;
      const { server, tool, inputSchema } = found;
      const schema = isSchema(inputSchema) ? inputSchema : undefined;
      const missing = schema ? missingArguments(written, schema) : [];
      if (schema && missing.length > 0) return explainMissing(found, schema, missing);
      let answer = '';
      const request = { server, tool, args: await argumentsText(written, schema), deadlineMs };
      const result = await client.request('call', request, (piece) => (answer += String(piece)));
      if (args.has('json')) printJsonText(answer);
      else printText(answerText(answer));
      return (result as { isError?: boolean } | null)?.isError ? EXIT.failed : EXIT.done;
    });
  },
};

/** `SERVER TOOL ...` if the second word can be a tool, else `SERVER.TOOL ...`. */
export function targetOf([server = '', ...rest]: readonly string[]): { target: ToolWords; words: readonly string[] } {
  const [tool, ...words] = rest;
  const isTool = tool !== undefined && tool !== '-' && !tool.startsWith('{') && !isMember(tool);
  return isTool ? { target: { server, tool }, words } : { target: { server }, words: rest };
}

function explainMissing({ server, tool }: FoundTool, schema: Schema, missing: readonly string[]): number {
  const name = `${server}.${tool}`;
  const lines = [
    [span('bad', `hostler: ${name} needs ${missing.join(', ')} [invalid_spec]`)],
    `         ${signatureOf(tool, schema)}`,
    ['         ', span('name', `hostler call ${quoted(name)} ${exampleArguments(schema)}`)],
  ];
  printLines(lines, process.stderr);
  return EXIT.usage;
}

function readText(file: string | number): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    const { code = 'unknown' } = error as NodeJS.ErrnoException;
    throw new HostError('invalid_spec', `${file === stdinDescriptor ? 'stdin' : file} cannot be read (${code})`, {
      ...{ field: 'arguments', reason: 'usage' },
      hint: 'name=@FILE sends the text of a file; name:=\'"@FILE"\' sends text that begins with @',
    });
  }
}

interface Content {
  readonly type?: string;
  readonly text?: string;
  readonly mimeType?: string;
  readonly uri?: string;
  readonly data?: unknown;
}

/** Text content is returned unchanged; other content is replaced by its type and size. */
export function answerText(json: string): string {
  const { content, structuredContent } = JSON.parse(json) as { content?: unknown; structuredContent?: unknown };
  const parts = Array.isArray(content) ? (content as Content[]) : [];
  if (parts.length === 0) return JSON.stringify(structuredContent ?? {}, null, 2);
  return parts.map((part) => (part?.type === 'text' ? String(part.text) : otherText(part))).join('\n');
}

function otherText({ type, mimeType, uri, data }: Content): string {
  const size = typeof data === 'string' ? formatSize(Buffer.byteLength(data, 'base64')) : undefined;
  return `[${[type, mimeType ?? uri, size].filter((part) => part !== undefined).join(' ')}]`;
}
