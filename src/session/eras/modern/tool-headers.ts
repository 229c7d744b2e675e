/**
 * Arguments that a modern server wants mirrored in HTTP headers (`x-mcp-header` in a tool's input schema).
 * An annotation the specification does not allow makes the whole tool unusable over HTTP; the caller drops it and says why.
 */
import { HostError } from '../../../kernel/errors.js';
import { LIMITS } from '../../../kernel/limits.js';
import { neutraliseLine } from '../../../kernel/terminal-text.js';
import { keyIs, memberBytes, stringOf, valuesAt } from '../../../wire/json-members.js';
import { eachMember } from '../../../wire/json-scan.js';
import { type Annotation, annotationKey, eachAnnotation } from './header-annotations.js';

export interface MirroredArgument {
  readonly path: readonly string[];
  readonly header: string;
}

export type HeaderScan = { ok: true; mirrored: readonly MirroredArgument[] } | { ok: false; reason: string };

const keyBytes = Buffer.from(annotationKey);
/** As the key could be written otherwise. */
const escapeBytes = Buffer.from('\\u00');
const token = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}$/;
const allowedTypes = new Set(['string', 'integer', 'boolean']);

/** Only of schemas that hold an annotation at all. */
const schemaBytesMax = 1024 * 1024;
/** Headers of a request have a limit everywhere (ours is 16 KiB); a tool that wants more could never be called. */
const mirroredMax = 32;
const headerCharsMax = 4_096;
/** Of the names on the way to an argument, which are kept for every call. */
const pathCharsMax = 4_096;
/** Deeper than anybody nests what a header is made of. */
const pathStepsMax = 8;

/** Takes the raw tool. Nearly all tools have no such annotation and are not walked at all. */
export function scanToolHeaders(tool: Buffer): HeaderScan {
  if (!tool.includes(keyBytes) && !tool.includes(escapeBytes)) return { ok: true, mirrored: [] };
  const schema = memberBytes(tool, 'inputSchema');
  if (!schema) return hasSchema(tool) ? { ok: false, reason: 'its schema cannot be told' } : { ok: true, mirrored: [] };
  if (schema.length > schemaBytesMax) return { ok: false, reason: `its schema has more than ${schemaBytesMax} bytes` };
  const mirrored: MirroredArgument[] = [];
  let reason: string | undefined;
  const isRead = eachAnnotation(schema, (found) => {
    const header = found.header && stringOf(found.header);
    const fault = faultOf(found, header, mirrored);
    if (fault) reason = `${annotationKey} at ${placeOf(found)} ${fault}`;
    else mirrored.push({ path: found.path, header: header as string });
    return fault === undefined;
  });
  // Whoever cut it out has walked it before; but who is to say so of each to come.
  if (!isRead) reason = 'its schema cannot be read';
  return reason === undefined ? { ok: true, mirrored } : { ok: false, reason };
}

/** Where none was found: it is there, but twice, or among too many others. */
function hasSchema(tool: Buffer): boolean {
  let isThere = false;
  eachMember(tool, 0, tool.length, 0, ({ keyStart, keyEnd }) => {
    isThere = keyIs(tool, keyStart, keyEnd, 'inputSchema');
    return !isThere;
  });
  return isThere;
}

const placeOf = ({ path }: Annotation): string =>
  path.length === 0 ? 'the root' : neutraliseLine(path.join('.'), LIMITS.quotedChars);

function faultOf(
  { path, isProperty, type }: Annotation,
  header: string | undefined,
  before: readonly MirroredArgument[],
): string | undefined {
  if (!isProperty) return 'stands where it cannot always be sent';
  if (path.length > pathStepsMax) return `is more than ${pathStepsMax} levels down`;
  if (path.reduce((sum, { length }) => sum + length, 0) > pathCharsMax)
    return `has names of more than ${pathCharsMax} characters`;
  if (header === undefined || !token.test(header)) return 'is not a header name';
  if (!allowedTypes.has((type && stringOf(type)) ?? '')) return 'is not on a string, integer or boolean';
  if (before.length >= mirroredMax) return `is one of more than ${mirroredMax}`;
  if (before.some((other) => other.header.toLowerCase() === header.toLowerCase()))
    return `repeats the header ${header}`;
  return undefined;
}

/**
 * The header values for one call, from its raw arguments. An argument that is absent or null is not mirrored; one that is
 * too long for a header is refused, since the server would refuse the call without it.
 */
export function headerValues(
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
    // The text itself for numbers: a 64-bit integer must not be rounded on its way into a header.
    if (typeof value === 'number') values.push([header, at.toString('latin1')]);
    else if (typeof value === 'string' || typeof value === 'boolean') values.push([header, String(value)]);
  }
  return values;
}

const unclear = (field: string) =>
  new HostError('invalid_arguments', `argument ${field} must travel in a header and stands more than once`, {
    field,
    phase: 'queued',
    execution: 'not_executed',
    hint: 'name each argument once, among not too many others; the server asks for it in a header',
  });

const tooLong = (field: string, actual: number) =>
  new HostError('invalid_arguments', `argument ${field} must travel in a header and is too long for one`, {
    field,
    limit: headerCharsMax,
    actual,
    phase: 'queued',
    execution: 'not_executed',
    hint: 'shorten the argument; the server asks for it in a header',
  });
