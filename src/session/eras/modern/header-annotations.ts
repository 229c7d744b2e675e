/**
 * Finds the annotations `x-mcp-header` of a schema in its bytes, where they mean something: on schemas, not on what is called so.
 * Without objects: a schema of 250 KiB may have 50,000 nodes, which take many times its size as objects.
 * Not here: what an annotation may say (tool-headers.ts), whether the text is JSON (whoever cut it out of a message).
 *
 * Invariants: of keys that stand twice each is walked, so that what any reader sees is found. One pass: looked at again are only
 * keys that could be the annotation, the names on the way to one, and the values that are handed over. What a node holds is worked
 * out on the way to an annotation, once for each node on it.
 */
import { LIMITS } from '../../../kernel/limits.js';
import { keyIs } from '../../../wire/json-members.js';
import { readString, skipSpace, skipString, skipValue } from '../../../wire/json-scan.js';

export const annotationKey = 'x-mcp-header';

export interface Annotation {
  /** Of the property that has it; of one below anything else, with the keywords on the way. */
  readonly path: readonly string[];
  /** Reached from the root through `properties` alone, so that a header can be demanded for it; never the root. */
  readonly isProperty: boolean;
  /** Values as they stand in the text; undefined: absent, or there twice. */
  readonly header: Buffer | undefined;
  readonly type: Buffer | undefined;
}

/** What an object or a list holds: the keywords of a schema; schemas in a list, by property or by name; or no schemas. */
type Holds = 'schema' | 'list' | 'properties' | 'map' | 'data';

/** What a keyword of a schema may have below it: schemas by name, or one that stands there itself or in a list. */
const keywords: ReadonlyMap<string, 'properties' | 'map' | 'schemas'> = new Map([
  ['properties', 'properties' as const],
  ...[
    ...['items', 'prefixItems', 'contains', 'additionalProperties', 'unevaluatedProperties', 'unevaluatedItems'],
    ...['propertyNames', 'oneOf', 'anyOf', 'allOf', 'not', 'if', 'then', 'else'],
  ].map((keyword) => [keyword, 'schemas'] as const),
  ...['patternProperties', 'dependentSchemas', '$defs', 'definitions'].map((keyword) => [keyword, 'map'] as const),
]);

/** An object or a list that the walk is in. Used again for the next one at its depth. */
class Level {
  isObject = false;
  /** The last string in it. Where an object or a list begins in an object, that is its key. */
  textStart = 0;
  textEnd = 0;
  /** Its own key, once it was asked for: one text for all annotations below it. */
  name: string | undefined;
  headerCount = 0;
  headerAt = 0;
  typeCount = 0;
  typeAt = 0;
  // Both set by `understand`, for the one that it is used for then.
  holds: Holds = 'data';
  isByProperties = false;

  begin(isObject: boolean): void {
    this.isObject = isObject;
    this.headerCount = 0;
    this.typeCount = 0;
    this.name = undefined;
  }
}

/** Calls `visit` for each, those below a node before its own; stops early when it returns false. False: it cannot be walked. */
export function eachAnnotation(schema: Buffer, visit: (found: Annotation) => boolean | undefined): boolean {
  const end = schema.length;
  const levels: Level[] = [];
  let depth = 0;
  /** Down to here it is known what they hold. */
  let knownDepth = 0;
  for (let i = 0; i < end; ) {
    const byte = schema[i];
    if (byte === QUOTE) {
      const after = skipString(schema, i + 1, end);
      if (after < 0) return false;
      if (depth > 0) i = note(schema, i + 1, after - 1, levels[depth - 1] as Level);
      else i = after;
      continue;
    }
    i++;
    if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
      if (depth === LIMITS.depth) return false;
      if (depth === levels.length) levels.push(new Level());
      (levels[depth++] as Level).begin(byte === OPEN_BRACE);
    } else if ((byte === CLOSE_BRACE || byte === CLOSE_BRACKET) && depth > 0) {
      const level = levels[depth - 1] as Level;
      if (level.headerCount > 0) {
        for (; knownDepth < depth; knownDepth++) understand(schema, levels, knownDepth);
        if (level.holds === 'schema' && visit(annotationAt(schema, levels, depth)) === false) return true;
      }
      depth--;
      if (knownDepth > depth) knownDepth = depth;
    }
  }
  return true;
}

/** Takes down a string, and what it is the key of when that matters; returns the index after it. */
function note(bytes: Buffer, start: number, end: number, level: Level): number {
  level.textStart = start;
  level.textEnd = end;
  const after = end + 1;
  const isType = keyIs(bytes, start, end, 'type');
  if (!level.isObject || (!isType && !keyIs(bytes, start, end, annotationKey))) return after;
  const colon = skipSpace(bytes, after, bytes.length);
  if (bytes[colon] !== COLON) return after;
  const valueAt = skipSpace(bytes, colon + 1, bytes.length);
  if (isType) {
    level.typeCount++;
    level.typeAt = valueAt;
  } else {
    level.headerCount++;
    level.headerAt = valueAt;
  }
  return valueAt;
}

/** What the level holds, from the one around it. */
function understand(bytes: Buffer, levels: readonly Level[], index: number): void {
  const level = levels[index] as Level;
  const around = levels[index - 1];
  const schema = level.isObject ? 'schema' : 'data';
  level.isByProperties = around === undefined || (around.isByProperties && around.holds === 'properties');
  if (around?.holds !== 'schema') {
    level.holds = around?.holds === 'data' ? 'data' : schema;
    return;
  }
  const below = keywords.get(nameOf(bytes, levels, index));
  if (below === 'schemas') level.holds = level.isObject ? 'schema' : 'list';
  else level.holds = below !== undefined && level.isObject ? below : 'data';
  if (below === 'properties') level.isByProperties = around.isByProperties;
}

/** What the level is called in the object around it. */
function nameOf(bytes: Buffer, levels: readonly Level[], index: number): string {
  const level = levels[index] as Level;
  const { textStart, textEnd } = levels[index - 1] as Level;
  level.name ??= readString(bytes, textStart, textEnd);
  return level.name;
}

function annotationAt(bytes: Buffer, levels: readonly Level[], depth: number): Annotation {
  const path: string[] = [];
  for (let i = 1; i < depth; i++) {
    const around = levels[i - 1] as Level;
    const isKeyword = around.holds === 'schema' && (levels[i] as Level).holds !== 'properties';
    if (isKeyword || around.holds === 'properties') path.push(nameOf(bytes, levels, i));
  }
  const { headerCount, headerAt, typeCount, typeAt, isByProperties } = levels[depth - 1] as Level;
  const valueAt = (at: number) => bytes.subarray(at, skipValue(bytes, at, bytes.length, depth));
  return {
    path,
    isProperty: isByProperties && depth > 1,
    header: headerCount === 1 ? valueAt(headerAt) : undefined,
    type: typeCount === 1 ? valueAt(typeAt) : undefined,
  };
}

const QUOTE = 0x22;
const COLON = 0x3a;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
