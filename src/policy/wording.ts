/**
 * Compares two versions of a tool field by field, and distinguishes wording from schema. Wording is `description`, `title`,
 * `$comment` and `examples` where they have no effect on validation. A property of the arguments with such a name is schema.
 * Not here: the effect of a difference (pin-records.ts).
 *
 * Invariants: a difference in anything but wording is never called wording. Values are compared as canonical text, so a change
 * in the last digit of a 64-bit integer is found.
 */
import { LIMITS } from '../kernel/limits.js';
import type { JsonText } from '../wire/channel.js';
import { eachElement, eachMember } from '../wire/json-scan.js';
import { canonicalText } from './canonical-json.js';

/** `annotations` decide about retries and confirmations, `schema` about arguments, `text` is only read by models and people. */
type FieldKind = 'annotations' | 'schema' | 'other' | 'text';

export interface FieldChange {
  /** Path with dots; a dot within a name has a backslash. */
  readonly field: string;
  readonly kind: FieldKind;
  /** JSON text; undefined: the field is absent. */
  readonly before: string | undefined;
  readonly after: string | undefined;
}

interface Leaf {
  readonly text: string;
  readonly kind: FieldKind;
}
type Leaves = Map<string, Leaf>;
/** `schemas`: a map of schemas by any names. `list`: a list of schemas. */
type Place = 'tool' | 'schema' | 'schemas' | 'list' | 'other';

const wordings: ReadonlySet<string> = new Set(['description', 'title', '$comment', 'examples']);
const placeOf: Readonly<Record<string, Place>> = {
  ...Object.fromEntries(
    ['properties', 'patternProperties', '$defs', 'definitions', 'dependentSchemas'].map((key) => [key, 'schemas']),
  ),
  ...Object.fromEntries(['allOf', 'anyOf', 'oneOf', 'prefixItems'].map((key) => [key, 'list'])),
  ...Object.fromEntries(
    [
      ...['items', 'additionalItems', 'unevaluatedItems', 'contains', 'additionalProperties', 'unevaluatedProperties'],
      ...['propertyNames', 'not', 'if', 'then', 'else', 'contentSchema'],
    ].map((key) => [key, 'schema']),
  ),
};

/**
 * If a `$ref` may lead into a wording member, that member is part of the schema. An anchor may be inside such a member, and a `%` may
 * encode such a path.
 */
const refersToWording = /\/(?:description|title|\$comment|examples)\b|^"#[^/"]|%/;

const OPEN_BRACE = 0x7b;
const OPEN_BRACKET = 0x5b;
const QUOTE = 0x22;

/** True if the definitions are equal except for wording. */
export function differInWordingOnly(before: JsonText, after: JsonText): boolean {
  const [old, now] = [leavesOf(before), leavesOf(after)];
  for (const [field, { text }] of [...old, ...now])
    if (/(?:^|\.)\$(?:dynamicR|recursiveR|r)ef$/.test(field) && refersToWording.test(text)) return false;
  return changesOf(old, now).every(({ kind }) => kind === 'text');
}

const ranks: readonly FieldKind[] = ['annotations', 'schema', 'other', 'text'];

/** The differing fields, those with the largest effect first. `before` undefined: the tool is new. */
export function fieldChanges(before: JsonText | undefined, after: JsonText): FieldChange[] {
  const changes = changesOf(before === undefined ? new Map() : leavesOf(before), leavesOf(after));
  return changes.sort((a, b) => ranks.indexOf(a.kind) - ranks.indexOf(b.kind));
}

function changesOf(old: Leaves, now: Leaves): FieldChange[] {
  const changes: FieldChange[] = [];
  for (const field of new Set([...old.keys(), ...now.keys()])) {
    const [before, after] = [old.get(field), now.get(field)];
    if (before?.text === after?.text && before?.kind === after?.kind) continue;
    // A text that became schema, or the reverse, is a change of schema.
    const kind = before && after && before.kind !== after.kind ? 'schema' : ((after ?? before) as Leaf).kind;
    changes.push({ field, kind, before: before?.text, after: after?.text });
  }
  return changes;
}

function leavesOf(raw: JsonText): Leaves {
  const bytes = Buffer.from(canonicalText(raw, LIMITS.toolValues));
  const leaves: Leaves = new Map();
  collect(bytes, '', 'tool', 'other', leaves);
  return leaves;
}

/** Returns true if the value has a leaf other than wording. */
function collect(bytes: Buffer, path: string, place: Place, kind: FieldKind, leaves: Leaves): boolean {
  let isNoted = false;
  const inside = (name: string, start: number, end: number, next: Place, nextKind: FieldKind) => {
    const field = path === '' ? name : `${path}.${name}`;
    if (collect(bytes.subarray(start, end), field, next, nextKind, leaves)) isNoted = true;
  };
  if (bytes[0] === OPEN_BRACE)
    eachMember(bytes, 0, bytes.length, 0, ({ keyStart, keyEnd, valueStart, valueEnd }) => {
      const key = JSON.parse(bytes.toString('utf8', keyStart - 1, keyEnd + 1)) as string;
      const [next, nextKind] = memberPlace(key, bytes[valueStart] as number, place, kind);
      inside(key.replace(/[\\.]/g, '\\$&'), valueStart, valueEnd, next, nextKind);
      return true;
    });
  else if (bytes[0] === OPEN_BRACKET && (place === 'list' || place === 'schema')) {
    let i = 0;
    eachElement(bytes, 0, bytes.length, 0, (start, end) => {
      inside(String(i++), start, end, 'schema', kind);
      return true;
    });
  } else leaves.set(path, { text: bytes.toString('utf8'), kind });
  const isContainer = !leaves.has(path);
  // Record a schema that has wording members only: otherwise its removal would go unnoticed.
  if (isContainer && !isNoted) leaves.set(path, { text: bytes[0] === OPEN_BRACE ? '{}' : '[]', kind });
  return kind !== 'text';
}

function memberPlace(key: string, first: number, place: Place, kind: FieldKind): readonly [Place, FieldKind] {
  const isWording = wordings.has(key) && (key === 'examples' || first === QUOTE);
  switch (place) {
    case 'tool':
      if (key === 'inputSchema' || key === 'outputSchema') return ['schema', 'schema'];
      if (key === 'annotations') return ['other', 'annotations'];
      return ['other', isWording && key !== 'examples' ? 'text' : 'other'];
    case 'schema':
      return isWording ? ['other', 'text'] : [Object.hasOwn(placeOf, key) ? (placeOf[key] as Place) : 'other', kind];
    case 'schemas':
      return ['schema', kind];
    default:
      return ['other', kind];
  }
}
