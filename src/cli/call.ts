/**
 * `hostler call`: one call of a tool, its answer on stdout, and an exit code that says what became of it.
 * Invariant: the arguments given as JSON go to the server as they were written.
 */
import { parseDuration } from '../config/values.js';
import { HostError } from '../kernel/errors.js';
import type { Words } from './command.js';
import { EXIT } from './exit-codes.js';
import { printJsonText, printText } from './print.js';
import { withRunning } from './running.js';

const timeoutDefault = '30s';

export function call(words: Words): Promise<number> {
  const [server, tool, json] = words.positionals;
  const args = argumentsText(json, words.all('arg'));
  const deadlineMs = parseDuration(words.text('timeout') ?? timeoutDefault, '--timeout');
  return withRunning(words, async (client) => {
    let text = '';
    const result = await client.ask('call', { server, tool, args, deadlineMs }, (piece) => (text += String(piece)));
    if (words.has('json')) printJsonText(text);
    else printText(answerText(text));
    return (result as { isError?: boolean } | null)?.isError ? EXIT.failed : EXIT.done;
  });
}

/** One JSON object. Options are added to it, and count more. */
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
    // Told below.
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

/** Texts as they are; of the rest what it is. */
export function answerText(json: string): string {
  const { content, structuredContent } = JSON.parse(json) as { content?: unknown; structuredContent?: unknown };
  const parts = Array.isArray(content) ? (content as Content[]) : [];
  if (parts.length === 0) return JSON.stringify(structuredContent ?? {}, null, 2);
  return parts.map((part) => (part?.type === 'text' ? String(part.text) : otherText(part))).join('\n');
}

const otherText = ({ type, mimeType, uri }: Content): string =>
  `[${[type, mimeType ?? uri].filter((word) => word !== undefined).join(' ')}]`;
