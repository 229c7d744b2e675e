/**
 * Arguments that a modern server requires in HTTP headers too: annotations `x-mcp-header` in the input schema of a tool.
 * An annotation that the specification does not allow makes the whole tool unusable over HTTP. The caller drops the tool.
 *
 * Invariants: the schema is scanned once and not parsed: 250 KiB may have 50,000 nodes. Every value of a repeated key is
 * scanned, so no annotation is missed that another reader of the schema would find.
 */

import { setImmediate as nextTurn } from 'node:timers/promises';
import { HostError, isHostError } from '../../../kernel/errors.js';
import { LIMITS } from '../../../kernel/limits.js';
import { neutraliseLine } from '../../../kernel/terminal-text.js';
import type { HttpFacts, JsonText } from '../../../wire/channel.js';
import { toBuffer } from '../../../wire/json-edit.js';
import { keyIs, memberBytes, memberString, stringOf, valuesAt } from '../../../wire/json-members.js';
import { eachMember, type Member, readString, skipSpace, skipValue } from '../../../wire/json-scan.js';
import { METHODS } from '../../../wire/methods.js';
import type { Answer } from '../../../wire/peer-interface.js';
import type { ListedItem, ServerList } from '../../lists.js';
import { readRpcError } from '../../rpc-response.js';
import type { RequestMirror } from '../server-era.js';
import { MODERN_ERRORS } from './protocol.js';

export interface MirroredArgument {
  readonly path: readonly string[];
  readonly header: string;
}

type HeaderScan = { ok: true; mirrored: readonly MirroredArgument[] } | { ok: false; reason: string };

const annotationKey = 'x-mcp-header';
const keyBytes = Buffer.from(annotationKey);
/** The key may contain escapes. */
const escapeBytes = Buffer.from('\\u00');
const token = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}$/;
const allowedTypes = new Set(['string', 'integer', 'boolean']);

/** Limit for schemas that may have an annotation. */
const schemaBytesMax = 1024 * 1024;
/** HTTP servers limit headers (Hostler to 16 KiB), so a tool with more annotations could never be called. */
const mirroredMax = 32;
const headerCharsMax = 4_096;
/** Limit for the total length of the names on the path to an argument, which stay in memory. */
const pathCharsMax = 4_096;
const pathStepsMax = 8;

/** Takes the raw tool. Nearly all tools have no annotation and are not scanned at all. */
export function scanToolHeaders(tool: Buffer): HeaderScan {
  if (!tool.includes(keyBytes) && !tool.includes(escapeBytes)) return { ok: true, mirrored: [] };
  const schema = memberBytes(tool, 'inputSchema');
  if (!schema) return hasSchema(tool) ? { ok: false, reason: 'its schema is ambiguous' } : { ok: true, mirrored: [] };
  if (schema.length > schemaBytesMax) return { ok: false, reason: `its schema has more than ${schemaBytesMax} bytes` };
  const mirrored: MirroredArgument[] = [];
  let reason: string | undefined;
  const isRead = eachAnnotation(schema, (found) => {
    const header = found.header && stringOf(found.header);
    const fault = faultOf(found, header, mirrored);
    if (fault) reason = `${annotationKey} at ${locationOf(found)} ${fault}`;
    else mirrored.push({ path: found.path, header: header as string });
    return fault === undefined;
  });
  if (!isRead) reason = 'its schema cannot be read';
  return reason === undefined ? { ok: true, mirrored } : { ok: false, reason };
}

/** True: the tool has a schema that `memberBytes` did not find, because it is repeated or among too many members. */
function hasSchema(tool: Buffer): boolean {
  let hasIt = false;
  eachMember(tool, 0, tool.length, 0, ({ keyStart, keyEnd }) => {
    hasIt = keyIs(tool, keyStart, keyEnd, 'inputSchema');
    return !hasIt;
  });
  return hasIt;
}

const locationOf = ({ path }: Annotation): string =>
  path.length === 0 ? 'the root' : neutraliseLine(path.join('.'), LIMITS.quotedChars);

function faultOf(
  { path, isProperty, type }: Annotation,
  header: string | undefined,
  before: readonly MirroredArgument[],
): string | undefined {
  if (!isProperty) return 'is not on a property that every call can have';
  if (path.length > pathStepsMax) return `is more than ${pathStepsMax} levels down`;
  if (path.reduce((sum, { length }) => sum + length, 0) > pathCharsMax)
    return `has a path of more than ${pathCharsMax} characters`;
  if (header === undefined || !token.test(header)) return 'is not a header name';
  if (!allowedTypes.has((type && stringOf(type)) ?? '')) return 'is not on a string, integer or boolean';
  if (before.length >= mirroredMax) return `exceeds the limit of ${mirroredMax} annotations`;
  if (before.some((other) => other.header.toLowerCase() === header.toLowerCase()))
    return `repeats the header ${header}`;
  return undefined;
}

interface Annotation {
  /** Property names, and the keywords on the path other than `properties`. */
  readonly path: readonly string[];
  /** The path has only `properties` keywords and is not empty, so every call can have the argument. */
  readonly isProperty: boolean;
  /** Values as in the text. Undefined: absent or repeated. */
  readonly header: Buffer | undefined;
  readonly type: Buffer | undefined;
}

/** Keywords that contain schemas: by property name, by another name, or directly as one schema or a list. */
const keywords: ReadonlyMap<string, 'properties' | 'names' | 'schemas'> = new Map([
  ['properties', 'properties' as const],
  ...[
    ...['items', 'prefixItems', 'contains', 'additionalProperties', 'unevaluatedProperties', 'unevaluatedItems'],
    ...['propertyNames', 'oneOf', 'anyOf', 'allOf', 'not', 'if', 'then', 'else'],
  ].map((keyword) => [keyword, 'schemas'] as const),
  ...['patternProperties', 'dependentSchemas', '$defs', 'definitions'].map((keyword) => [keyword, 'names'] as const),
]);

const OPEN_BRACE = 0x7b;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const COMMA = 0x2c;

/** Calls `visit` for each annotation, the inner ones first; stops when it returns false. False: the text cannot be read. */
export function eachAnnotation(bytes: Buffer, visit: (found: Annotation) => boolean | undefined): boolean {
  const end = bytes.length;
  let isStopped = false;

  /** The functions here return the index after the value at `at`, or -1. `depth`: number of containers around the value. */
  function schema(at: number, depth: number, path: readonly string[], isProperty: boolean): number {
    if (bytes[at] !== OPEN_BRACE) return skipValue(bytes, at, end, depth);
    if (depth >= LIMITS.depth) return -1;
    const headers: Buffer[] = [];
    const types: Buffer[] = [];
    const enter = (_: Buffer, member: Member) => keyword(member, depth + 1, path, isProperty);
    const after = eachMember(
      bytes,
      at,
      end,
      depth,
      ({ keyStart, keyEnd, valueStart, valueEnd }) => {
        if (keyIs(bytes, keyStart, keyEnd, annotationKey)) headers.push(bytes.subarray(valueStart, valueEnd));
        else if (keyIs(bytes, keyStart, keyEnd, 'type')) types.push(bytes.subarray(valueStart, valueEnd));
        return undefined;
      },
      enter,
    );
    if (after < 0 || headers.length === 0) return after;
    const only = (values: readonly Buffer[]) => (values.length === 1 ? values[0] : undefined);
    const found = { path, isProperty: isProperty && path.length > 0, header: only(headers), type: only(types) };
    isStopped = visit(found) === false;
    return isStopped ? -1 : after;
  }

  /** Undefined: the member contains no schemas. */
  function keyword(
    { keyStart, keyEnd, valueStart }: Member,
    depth: number,
    path: readonly string[],
    isProperty: boolean,
  ) {
    const first = bytes[valueStart];
    if (first !== OPEN_BRACE && first !== OPEN_BRACKET) return undefined;
    const name = readString(bytes, keyStart, keyEnd);
    const below = keywords.get(name);
    if (below === 'schemas') {
      const inner = [...path, name];
      return first === OPEN_BRACE ? schema(valueStart, depth, inner, false) : list(valueStart, depth, inner);
    }
    if (below === undefined || first !== OPEN_BRACE) return undefined;
    if (depth >= LIMITS.depth) return -1;
    const isProperties = below === 'properties';
    const inner = isProperties ? path : [...path, name];
    return eachMember(
      bytes,
      valueStart,
      end,
      depth,
      () => undefined,
      (_, member) => {
        const at = isProperties ? [...path, readString(bytes, member.keyStart, member.keyEnd)] : inner;
        return schema(member.valueStart, depth + 1, at, isProperty && isProperties);
      },
    );
  }

  function list(from: number, depth: number, path: readonly string[]): number {
    if (depth >= LIMITS.depth) return -1;
    let i = skipSpace(bytes, from + 1, end);
    if (bytes[i] === CLOSE_BRACKET) return i + 1;
    for (;;) {
      i = schema(skipSpace(bytes, i, end), depth + 1, path, false);
      if (i < 0) return -1;
      i = skipSpace(bytes, i, end);
      if (bytes[i] === CLOSE_BRACKET) return i + 1;
      if (bytes[i] !== COMMA) return -1;
      i++;
    }
  }

  return schema(skipSpace(bytes, 0, end), 0, [], true) >= 0 || isStopped;
}

/**
 * Header values for one call, from its raw arguments. An absent or null argument has no header. An argument that is too long
 * for a header is refused, because the server would refuse the call without the header.
 */
function headerValues(
  mirrored: readonly MirroredArgument[],
  args: Buffer | undefined,
): ReadonlyArray<readonly [name: string, value: string]> {
  const values: [string, string][] = [];
  const found = valuesAt(
    args,
    mirrored.map(({ path }) => path),
  );
  for (const [i, at] of found.entries()) {
    const { path, header } = mirrored[i] as MirroredArgument;
    if (at === 'unclear') throw unclear(path.join('.'));
    if (at === 'absent') continue;
    if (at.length > headerCharsMax) throw tooLong(path.join('.'), at.length);
    const value: unknown = JSON.parse(at.toString('utf8'));
    // Numbers keep their text: a 64-bit integer must not be rounded.
    if (typeof value === 'number') values.push([header, at.toString('latin1')]);
    else if (typeof value === 'string' || typeof value === 'boolean') values.push([header, String(value)]);
  }
  return values;
}

const unclear = (field: string) =>
  new HostError('invalid_arguments', `argument ${field} is sent in a header too, and is given more than once`, {
    field,
    phase: 'queued',
    execution: 'not_executed',
    hint: 'pass each argument only once, or pass fewer arguments',
  });

const tooLong = (field: string, actual: number) =>
  new HostError('invalid_arguments', `argument ${field} is sent in a header too, and is too long for one`, {
    field,
    limit: headerCharsMax,
    actual,
    phase: 'queued',
    execution: 'not_executed',
    hint: 'shorten the argument; the server requires it in a header',
  });

/** Bytes of a list that are scanned in one turn of the event loop. */
const turnBytes = 64 * 1024;

/**
 * Copies parts of a request into HTTP headers, as modern servers require: the name of the tool, prompt or resource, and
 * annotated arguments (`x-mcp-header`). The annotations are in the tool list.
 * Not here: writing headers (transports/http/).
 * Invariant: the newest list wins, even over an older list whose scan ends later. Until its scan ends, the old list is used.
 */
export class MirroredHeaders implements RequestMirror {
  #byTool: ReadonlyMap<string, readonly MirroredArgument[]> = new Map();
  #dropped: ReadonlyMap<string, string> = new Map();
  #lists = 0;

  get dropped(): ReadonlyMap<string, string> {
    return this.#dropped;
  }

  headersOf(method: string, params: JsonText | undefined): HttpFacts | undefined {
    const member = METHODS.get(method)?.nameMember;
    if (member === undefined || params === undefined) return undefined;
    const bytes = toBuffer(params);
    const name = memberString(bytes, member);
    if (name === undefined) return undefined;
    return method === 'tools/call' ? this.headersOfCall(name, memberBytes(bytes, 'arguments')) : { name };
  }

  headersOfCall(name: string, args: JsonText | undefined): HttpFacts {
    const mirrored = this.#byTool.get(name);
    if (!mirrored?.length || args === undefined) return { name };
    return { name, params: headerValues(mirrored, toBuffer(args)) };
  }

  isMismatch(outcome: Answer | unknown): boolean {
    if (isHostError(outcome)) return outcome.details.rpcCode === MODERN_ERRORS.headerMismatch;
    const { kind, bytes } = outcome as Answer;
    return kind === 'error' && readRpcError(bytes).code === MODERN_ERRORS.headerMismatch;
  }

  async learn(list: ServerList): Promise<ServerList> {
    const number = ++this.#lists;
    const byTool = new Map<string, readonly MirroredArgument[]>();
    const dropped = new Map<string, string>();
    const items: ListedItem[] = [];
    let bytes = 0;
    for (const item of list.items) {
      const scan = scanToolHeaders(item.raw);
      if (scan.ok) {
        byTool.set(item.key, scan.mirrored);
        items.push(item);
      } else dropped.set(item.key, scan.reason);
      bytes += item.raw.length;
      if (bytes < turnBytes) continue;
      bytes = 0;
      await nextTurn();
    }
    if (number === this.#lists) {
      this.#byTool = byTool;
      this.#dropped = dropped;
    }
    return { ...list, items };
  }
}
