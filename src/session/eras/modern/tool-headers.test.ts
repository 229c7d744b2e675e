import { expect, test } from 'vitest';
import { LIMITS } from '../../../kernel/limits.js';
import { randomInt, seededRandom } from '../../../kernel/random.js';
import { eachAnnotation, scanToolHeaders } from './tool-headers.js';

function annotationsOf(text: string) {
  const found: string[] = [];
  const isRead = eachAnnotation(Buffer.from(text), ({ path, isProperty, header, type }) => {
    found.push(`${path.join('.')} ${isProperty} ${header} ${type}`);
    return undefined;
  });
  return { isRead, found };
}
const scan = (inputSchema: unknown) => scanToolHeaders(Buffer.from(JSON.stringify({ name: 't', inputSchema })));
const key = 'x-mcp-header';
const text = (header: unknown) => ({ type: 'string', [key]: header });

test('annotations are found on properties with any neighbours, and not where another member has the same name', () => {
  const schema = {
    examples: [{ [key]: 'in data' }, text('In-Data')],
    properties: {
      region: text('Region'),
      [key]: { type: 'string' },
      'a.b': { properties: { 'é"': { ...text('Deep'), description: key } } },
      properties: { enum: [{ properties: { no: text('No') } }] },
    },
    required: [key],
  };
  expect(annotationsOf(JSON.stringify(schema, null, 1))).toEqual({
    isRead: true,
    found: ['region true "Region" "string"', 'a.b.é" true "Deep" "string"'],
  });
  expect(scan(schema)).toEqual({
    ok: true,
    mirrored: [
      { path: ['region'], header: 'Region' },
      { path: ['a.b', 'é"'], header: 'Deep' },
    ],
  });
});

test.each([
  ['the root', { [key]: 'A' }, 'at the root is not on a property that every call can have'],
  ['a branch', { anyOf: [{}, { properties: { a: text('A') } }] }, 'at anyOf.a is not on a property'],
  ['a schema by name', { $defs: { one: { properties: { a: text('A') } } } }, 'at $defs.a is not on a property'],
  ['a schema below not', { properties: { a: { not: text('A') } } }, 'at a.not is not on a property'],
  ['a text that is not a header name', { properties: { a: text('a b') } }, 'at a is not a header name'],
  ['a value that is not a text', { properties: { a: text(1) } }, 'at a is not a header name'],
  ['a property of type number', { properties: { a: { ...text('A'), type: 'number' } } }, 'at a is not on a string'],
  [
    'a property with a list of types',
    { properties: { a: { ...text('A'), type: ['string'] } } },
    'at a is not on a string',
  ],
  [
    'a second property with the same header',
    { properties: { a: text('A'), b: text('a') } },
    'at b repeats the header a',
  ],
])('a forbidden annotation makes the tool unusable, and the reason names its place: %s', (_what, schema, reason) => {
  expect(scan({ type: 'object', ...schema })).toEqual({ ok: false, reason: expect.stringContaining(reason) });
});

test.each([
  ...['items', 'prefixItems', 'contains', 'additionalProperties', 'unevaluatedProperties', 'unevaluatedItems'],
  ...['propertyNames', 'oneOf', 'anyOf', 'allOf', 'not', 'if', 'then', 'else'],
])('an annotation below %s, in a list or not, is not on a property that every call can have', (keyword) => {
  const reason = `${key} at ${keyword}.a is not on a property that every call can have`;
  for (const below of [{ properties: { a: text('A') } }, [{}, { properties: { a: text('A') } }]])
    expect(scan({ [keyword]: below })).toEqual({ ok: false, reason });
});

test.each(['patternProperties', 'dependentSchemas', '$defs', 'definitions'])(
  'an annotation below %s, by name, is not on a property that every call can have; in a list it is ignored',
  (keyword) => {
    const reason = `${key} at ${keyword} is not on a property that every call can have`;
    expect(scan({ [keyword]: { one: text('A') } })).toEqual({ ok: false, reason });
    expect(scan({ [keyword]: [text('A')] })).toEqual({ ok: true, mirrored: [] });
  },
);

test('an annotation as a duplicate key, below a duplicate key, or with escapes, is found', () => {
  const inTwo = `{"properties":{"a":{"type":"string","${key}":"A"}},"properties":{}}`;
  const inEscapes = `{"propert\\u0069es":{"a":{"x\\u002dmcp-header":"A","typ\\u0065":"string"}}}`;
  const raw = (schema: string) => scanToolHeaders(Buffer.from(`{"name":"t","inputSchema":${schema}}`));
  for (const schema of [inTwo, inEscapes])
    expect(raw(schema)).toEqual({ ok: true, mirrored: [{ path: ['a'], header: 'A' }] });
  const twice = raw(`{"properties":{"a":{"type":"string","${key}":"A","${key}":"B"}}}`);
  expect(twice).toEqual({ ok: false, reason: `${key} at a is not a header name` });
  const types = raw(`{"properties":{"a":{"type":"string","typ\\u0065":"number","${key}":"A"}}}`);
  expect(types).toEqual({ ok: false, reason: `${key} at a is not on a string, integer or boolean` });
});

test('a tool whose schema is given twice, or among too many members, is unusable if it may have an annotation', () => {
  const schema = `"inputSchema":{"properties":{"a":{"type":"string","${key}":"A"}}}`;
  const many = Array.from({ length: LIMITS.members }, (_, i) => `"k${i}":0`).join();
  const disguised = schema.replace('Schema', 'Sch\\u0065ma');
  for (const members of [`${schema},${schema}`, `${schema},${many}`, `${disguised},${disguised}`])
    expect(scanToolHeaders(Buffer.from(`{${members}}`))).toEqual({ ok: false, reason: 'its schema is ambiguous' });
  expect(scan(undefined)).toEqual({ ok: true, mirrored: [] });
  const talk = Buffer.from(JSON.stringify({ name: 't', title: 'inputSchema', description: `has no ${key}` }));
  expect(scanToolHeaders(talk)).toEqual({ ok: true, mirrored: [] });
});

test('a long name above many annotations is stored once, and makes the path of each too long for a header', () => {
  const properties = Object.fromEntries(Array.from({ length: 32 }, (_, i) => [`p${i}`, text(`H${i}`)]));
  const below = (name: string) => ({ properties: { [name]: { properties } } });
  const schema = Buffer.from(JSON.stringify(below('é'.repeat(1_000_000))));
  const paths: (readonly string[])[] = [];
  const before = process.memoryUsage().heapUsed;
  eachAnnotation(schema, ({ path }) => void paths.push(path));
  const grew = process.memoryUsage().heapUsed - before;
  // Separate copies would need at least 32 MB; earlier garbage may be collected meanwhile.
  expect([paths.length, grew]).toEqual([32, expect.toSatisfy((bytes: number) => bytes < 12e6)]);
  const found = scan(below('é'.repeat(5_000)));
  expect(found).toEqual({ ok: false, reason: expect.stringContaining('has a path of more than 4096 characters') });
  expect(JSON.stringify(found).length).toBeLessThan(LIMITS.quotedChars + 200);
});

test('an annotation that nests too deep is refused for a header', () => {
  const down = (levels: number): unknown =>
    levels === 0 ? text('A') : { type: 'object', properties: { a: down(levels - 1) } };
  expect(scan(down(8))).toMatchObject({ ok: true });
  expect(scan(down(9))).toEqual({ ok: false, reason: expect.stringContaining('is more than 8 levels down') });
});

test('a schema that nests too deep is not read, and no annotation is found in text that is not JSON', () => {
  const nested = (depth: number) => `${'{"not":'.repeat(depth)}{}${'}'.repeat(depth)}`;
  expect([LIMITS.depth - 1, LIMITS.depth].map((depth) => annotationsOf(nested(depth)).isRead)).toEqual([true, false]);
  const ends = ['', '}', ']]', '{"a', `{"${key}"`, `{"${key}":`, `"${key}":1}`, '{"a":1}}}'];
  for (const bad of ends) expect([bad, annotationsOf(bad).found]).toEqual([bad, []]);
  expect(annotationsOf('true')).toEqual({ isRead: true, found: [] });
});

test('in any schema the annotations found equal those of a walk through its objects', () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const random = seededRandom(seed);
  const below = (n: number) => randomInt(random, 0, n - 1);
  const names = [
    'properties',
    'items',
    'anyOf',
    'not',
    '$defs',
    'patternProperties',
    'type',
    key,
    'x',
    'ü',
    '0',
    'enum',
  ];
  const make = (depth: number): unknown => {
    const what = below(depth > 6 ? 4 : 12);
    if (what < 4) return [null, 7, 'string', 'H'][what];
    const children = Array.from({ length: below(5) }, () => make(depth + 1));
    if (what < 6) return children;
    return Object.fromEntries(children.map((child) => [names[below(names.length)], child]));
  };
  let total = 0;
  for (let i = 0; i < 3_000; i++) {
    const schema = make(0);
    const wanted = walked(schema);
    total += wanted.length;
    expect({ seed, i, found: annotationsOf(JSON.stringify(schema)).found.sort() }).toEqual({
      seed,
      i,
      found: wanted.sort(),
    });
  }
  expect(total).toBeGreaterThan(100);
});

/** The same annotations, found in the parsed object. */
function walked(node: unknown, path: readonly string[] = [], isProperty = true, found: string[] = []): string[] {
  if (typeof node !== 'object' || node === null || Array.isArray(node)) return found;
  for (const [name, below] of Object.entries(node)) {
    if (name === 'properties') {
      if (isPlain(below))
        for (const [property, each] of Object.entries(below)) walked(each, [...path, property], isProperty, found);
    } else if (name === '$defs' || name === 'patternProperties') {
      if (isPlain(below)) for (const each of Object.values(below)) walked(each, [...path, name], false, found);
    } else if (name === 'items' || name === 'anyOf' || name === 'not')
      for (const each of Array.isArray(below) ? below : [below]) walked(each, [...path, name], false, found);
  }
  const { [key]: header, type } = node as Record<string, unknown>;
  if (Object.hasOwn(node, key))
    found.push(`${path.join('.')} ${isProperty && path.length > 0} ${JSON.stringify(header)} ${JSON.stringify(type)}`);
  return found;
}
const isPlain = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
