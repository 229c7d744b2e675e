/**
 * Arguments that a modern server wants mirrored in HTTP headers (`x-mcp-header` in a tool's input schema).
 * An annotation the specification does not allow makes the whole tool unusable over HTTP; the caller drops it and says why.
 */
import { HostError } from '../kernel/errors.js';
import { memberBytes } from '../wire/json-members.js';

export interface MirroredArgument {
  readonly path: readonly string[];
  readonly header: string;
}

export type HeaderScan = { ok: true; mirrored: readonly MirroredArgument[] } | { ok: false; reason: string };

const KEY = 'x-mcp-header';
const keyBytes = Buffer.from(KEY);
const token = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}$/;
const allowedTypes = new Set(['string', 'integer', 'boolean']);

/** Only of schemas that hold an annotation at all. */
const schemaBytesMax = 1024 * 1024;
/** Headers of a request have a limit everywhere (ours is 16 KiB); a tool that wants more could never be called. */
const mirroredMax = 32;
const headerCharsMax = 4_096;

/** What stands below a keyword: properties that may have headers, or a schema, several, or schemas by name. */
type Kind = 'properties' | 'schemas' | 'map';

/** Below all but the first a property is not always there, so that no header could be demanded for it. */
const keywords: ReadonlyMap<string, Kind> = new Map<string, Kind>([
  ['properties', 'properties'],
  ...[
    ...['items', 'prefixItems', 'contains', 'additionalProperties', 'unevaluatedProperties', 'unevaluatedItems'],
    ...['propertyNames', 'oneOf', 'anyOf', 'allOf', 'not', 'if', 'then', 'else'],
  ].map((keyword) => [keyword, 'schemas'] as const),
  ...['patternProperties', 'dependentSchemas', '$defs', 'definitions'].map((keyword) => [keyword, 'map'] as const),
]);

/** Takes the raw tool. Nearly all tools have no such annotation and are not parsed at all. */
export function scanToolHeaders(tool: Buffer): HeaderScan {
  if (!tool.includes(keyBytes)) return { ok: true, mirrored: [] };
  const schema = memberBytes(tool, 'inputSchema');
  if (!schema) return { ok: true, mirrored: [] };
  if (schema.length > schemaBytesMax) return { ok: false, reason: `its schema has more than ${schemaBytesMax} bytes` };
  const mirrored: MirroredArgument[] = [];
  const reason = visit(JSON.parse(schema.toString('utf8')), undefined, true, mirrored);
  return reason === undefined ? { ok: true, mirrored } : { ok: false, reason };
}

/** Where a node stands. Written out only for what is found: a schema may have tens of thousands of nodes. */
interface Place {
  readonly above: Place | undefined;
  readonly name: string;
}

function pathOf(place: Place | undefined): string[] {
  const path: string[] = [];
  for (let at = place; at; at = at.above) path.push(at.name);
  return path.reverse();
}

/** Looks at what a node has, not for what it could have: each could have all the keywords, and most have none. */
function visit(
  node: unknown,
  place: Place | undefined,
  always: boolean,
  found: MirroredArgument[],
): string | undefined {
  if (typeof node !== 'object' || node === null) return undefined;
  const schema = node as Record<string, unknown>;
  if (Object.hasOwn(schema, KEY)) {
    const path = pathOf(place);
    const fault = always && place ? check(schema, path, found) : 'stands where it cannot always be sent';
    if (fault) return `${KEY} at ${path.join('.') || 'the root'} ${fault}`;
  }
  for (const keyword in schema) {
    const kind = keywords.get(keyword);
    if (kind === undefined) continue;
    const fault = visitBelow(schema[keyword], kind, { above: place, name: keyword }, always, found);
    if (fault) return fault;
  }
  return undefined;
}

function visitBelow(below: unknown, kind: Kind, place: Place, always: boolean, found: MirroredArgument[]) {
  if (typeof below !== 'object' || below === null) return undefined;
  const isList = Array.isArray(below);
  if (kind === 'schemas' && !isList) return visit(below, place, false, found);
  if (kind !== 'schemas' && isList) return undefined;
  for (const [name, child] of Object.entries(below)) {
    const fault =
      kind === 'properties'
        ? visit(child, { above: place.above, name }, always, found)
        : visit(child, place, false, found);
    if (fault) return fault;
  }
  return undefined;
}

function check(
  schema: Record<string, unknown>,
  path: readonly string[],
  found: MirroredArgument[],
): string | undefined {
  const header = schema[KEY];
  if (typeof header !== 'string' || !token.test(header)) return 'is not a header name';
  if (typeof schema.type !== 'string' || !allowedTypes.has(schema.type))
    return 'is not on a string, integer or boolean';
  if (found.length >= mirroredMax) return `is one of more than ${mirroredMax}`;
  if (found.some((other) => other.header.toLowerCase() === header.toLowerCase())) return `repeats the header ${header}`;
  found.push({ path, header });
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
  for (const { path, header } of mirrored) {
    let at = args;
    for (const name of path) at = at && memberBytes(at, name);
    if (!at) continue;
    if (at.length > headerCharsMax) throw tooLong(path.join('.'), at.length);
    const value: unknown = JSON.parse(at.toString('utf8'));
    // The text itself for numbers: a 64-bit integer must not be rounded on its way into a header.
    if (typeof value === 'number') values.push([header, at.toString('latin1')]);
    else if (typeof value === 'string' || typeof value === 'boolean') values.push([header, String(value)]);
  }
  return values;
}

const tooLong = (field: string, actual: number) =>
  new HostError('invalid_arguments', `argument ${field} must travel in a header and is too long for one`, {
    field,
    limit: headerCharsMax,
    actual,
    phase: 'queued',
    execution: 'not_executed',
    hint: 'shorten the argument; the server asks for it in a header',
  });
