/**
 * The bodies that workers and hosts of an older broker speak: arguments as text, results as one text, errors as a sentence,
 * tools as function schemas under one flat name. Both directions of both halves; used only where `compat` is asked for.
 * Not here: what is spoken otherwise (messages.ts).
 *
 * Invariants: an answer that cannot be read is an error and never an empty one; arguments are an object on both sides, as
 * text or not. What these shapes have no place for (images, structured content, codes) is lost, and only here.
 */
import { createHash } from 'node:crypto';
import { HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import type { JsonText } from '../wire/frame.js';
import {
  isList,
  isObject,
  memberBytes,
  memberString,
  memberText,
  stringOf,
  uniqueMembers,
} from '../wire/json-members.js';
import { eachElement } from '../wire/json-scan.js';
import { checkObject, checkValue } from '../wire/json-text.js';
import { type ManifestTool, nameCharsMax, type Reply } from './messages.js';

/** Tools have no server there; where one is needed they are under this name. */
const olderServer = 'host';
const noParameters = Buffer.from('{"type":"object"}');

export type OlderRequest =
  | { readonly op: 'manifest' }
  | { readonly op: 'call'; readonly tool: string; readonly args: Buffer };

// --- requests

export const olderManifestRequest = (): Buffer => Buffer.from('{"op":"manifest"}');

export const olderCallRequest = (tool: string, args: JsonText): Buffer =>
  Buffer.from(JSON.stringify({ op: 'call', tool, arguments: textOf(args) }));

/** Throws a HostError that says what is wrong. */
export function readOlderRequest(body: Buffer): OlderRequest {
  const found = uniqueMembers(body, ['op', 'tool', 'arguments']);
  if (!found) throw badRequest('it is not one JSON object, or has a member twice');
  const [op, tool, args] = found.map((value) => value && stringOf(value));
  switch (op) {
    case 'manifest':
      return { op };
    case 'call':
      if (!tool || tool.length > nameCharsMax) throw badRequest('tool must be a name');
      if (args === undefined) throw badRequest('arguments must be the text of an object');
      return { op, tool, args: argumentsOf(args) };
    default:
      throw badRequest('op must be manifest or call');
  }
}

/** Models that have nothing to say send nothing. */
function argumentsOf(text: string): Buffer {
  const bytes = Buffer.from(text.trim() === '' ? '{}' : text.trim());
  try {
    checkObject(bytes, 'arguments');
  } catch {
    throw badRequest('arguments must be the text of an object');
  }
  return bytes;
}

// --- replies

/** `name` is the flat one under which the tool is called; `raw` as its server wrote it. */
export function olderManifestReply(tools: readonly { readonly name: string; readonly raw: Buffer }[]): Buffer {
  const schemas = tools.map(({ name, raw }) => {
    const description = JSON.stringify(memberString(raw, 'description') ?? '');
    const parameters = memberText(raw, 'inputSchema') ?? noParameters.toString();
    return `{"type":"function","function":{"name":${JSON.stringify(name)},"description":${description},"parameters":${parameters}}}`;
  });
  return Buffer.from(`{"manifest":[${schemas.join(',')}]}`);
}

/** Of a result of a tool. */
export function olderResultReply(result: Buffer): Buffer {
  const isError = memberText(result, 'isError') === 'true';
  return Buffer.from(JSON.stringify({ result: { success: !isError, result: textOfResult(result) } }));
}

export const olderErrorReply = (error: HostError): Buffer => Buffer.from(JSON.stringify({ error: error.message }));

/** Its texts, where it has nothing else; otherwise all of it, as JSON. */
function textOfResult(result: Buffer): string {
  const content = memberBytes(result, 'content');
  const texts: string[] = [];
  let isText = isList(content);
  if (isList(content)) {
    eachElement(content, 0, content.length, 0, (start, end) => {
      const text = textOfPart(content.subarray(start, end));
      if (text === undefined) isText = false;
      else texts.push(text);
      return undefined;
    });
  }
  return isText ? texts.join('\n') : result.toString('utf8');
}

const textOfPart = (part: Buffer): string | undefined =>
  memberString(part, 'type') === 'text' ? memberString(part, 'text') : undefined;

/** Throws when it is not one. */
export function readOlderReply(body: Buffer): Reply {
  try {
    checkValue(body, 'the reply');
  } catch (cause) {
    throw badReply('it is not JSON', cause);
  }
  const [manifest, result, error] = uniqueMembers(body, ['manifest', 'result', 'error']) ?? [];
  const said = error && stringOf(error);
  if (said !== undefined) return { kind: 'error', error: remoteError(said) };
  if (isObject(result)) return { kind: 'result', bytes: resultOf(result), era: 'legacy' };
  if (!isList(manifest)) throw badReply('missing result');
  const revision = createHash('sha256').update(manifest).digest('base64url');
  return { kind: 'manifest', manifest: { revision, tools: toolsOf(manifest) } };
}

function resultOf(result: Buffer): Buffer {
  const [success, text] = uniqueMembers(result, ['success', 'result']) ?? [];
  const said = text && stringOf(text);
  if (said === undefined) throw badReply('its result has no text');
  return Buffer.from(
    JSON.stringify({ content: [{ type: 'text', text: said }], isError: success?.toString() !== 'true' }),
  );
}

function toolsOf(manifest: Buffer): ManifestTool[] {
  const tools: ManifestTool[] = [];
  const after = eachElement(manifest, 0, manifest.length, 0, (start, end) => {
    if (tools.length >= LIMITS.toolListItems) throw badReply('its manifest has too many entries');
    tools.push(toolOf(manifest.subarray(start, end)));
    return undefined;
  });
  if (after < 0) throw badReply('its manifest cannot be read');
  return tools;
}

/** A function schema, with what is around it in most dialects or without. */
function toolOf(entry: Buffer): ManifestTool {
  const schema = memberBytes(entry, 'function') ?? entry;
  const name = memberString(schema, 'name');
  if (!name || name.length > nameCharsMax) throw badReply('its manifest has an entry without a name');
  const description = JSON.stringify(memberString(schema, 'description') ?? '');
  const parameters = memberBytes(schema, 'parameters');
  const inputSchema = isObject(parameters) ? parameters : noParameters;
  const raw = Buffer.from(
    `{"name":${JSON.stringify(name)},"description":${description},"inputSchema":${inputSchema.toString('utf8')}}`,
  );
  return { server: olderServer, name, raw };
}

const textOf = (text: JsonText): string => (typeof text === 'string' ? text : Buffer.from(text).toString('utf8'));

const badRequest = (what: string): HostError =>
  new HostError('invalid_request', `bad mcp request: ${what}`, {
    execution: 'not_executed',
    hint: 'correct the worker',
  });

const badReply = (what: string, cause?: unknown): HostError =>
  new HostError('protocol_error', `bad mcp reply: ${what}`, {
    execution: 'uncertain',
    hint: 'both sides must speak the older messages, or neither',
    cause,
  });

/** A sentence is all there is: whether anything ran cannot be known from it. */
const remoteError = (said: string): HostError =>
  new HostError('tool_error', neutraliseLine(said, LIMITS.quotedChars), { execution: 'uncertain' });
