import { describe, expect, test } from 'vitest';
import { reencoded, samples, sampleTool } from '../../test/fakes/pin-samples.js';
import { LIMITS } from '../kernel/limits.js';
import { seededRandom } from '../kernel/random.js';
import { canonicalText } from './canonical-json.js';
import { type PinKind, pinHash } from './pin-hash.js';

const hashOf = (value: unknown, kind: PinKind = 'tool') => pinHash(kind, JSON.stringify(value))?.hash;
const bodyOf = (value: unknown, kind: PinKind = 'tool') => pinHash(kind, JSON.stringify(value))?.bodyHash;
const bare = { name: 'a', inputSchema: { type: 'object' } };

describe('equal hashes', () => {
  test('the hash of a tool is the same in all releases', () => {
    expect(pinHash('tool', JSON.stringify(bare))).toEqual({
      hash: '317600401279a00fc07c31c36b1a01dbc4c9ba8f5636f38752bcba58cf01dbe5',
      bodyHash: '06132322177f553140042aed3b694abd5605b46f8b5ab9a4dc68dd7bfb84f820',
    });
  });

  test.each([
    ['the order of members', '{"inputSchema":{"type":"object"},"name":"a"}'],
    ['white space', ' { "name" : "a" ,\n"inputSchema": {"type":"object"} } '],
    ['escapes', '{"n\\u0061me":"\\u0061","inputSchema":{"type":"object"}}'],
    ['empty annotations', '{"name":"a","inputSchema":{"type":"object"},"annotations":{}}'],
    ['an explicit default hint', '{"name":"a","inputSchema":{"type":"object"},"annotations":{"destructiveHint":true}}'],
  ])('definitions that differ only in %s', (_name, text) => {
    expect(pinHash('tool', text)).toEqual(pinHash('tool', JSON.stringify(bare)));
    expect(pinHash('tool', Buffer.from(text))).toEqual(pinHash('tool', text));
  });

  test('explicit default hints do not change the hash', () => {
    const annotations = { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true };
    expect(hashOf({ ...bare, annotations })).toBe(hashOf(bare));
  });

  test.each(Object.keys(samples) as PinKind[])('kind %s has the same hash in any JSON notation', (kind) => {
    const random = seededRandom(7);
    const wanted = hashOf(samples[kind], kind);
    for (let i = 0; i < 100; i++) expect(pinHash(kind, reencoded(random, samples[kind]))?.hash).toBe(wanted);
  });
});

describe('different hashes', () => {
  test.each(Object.keys(sampleTool))('D-25 a tool without its %s', (field) => {
    const { [field]: _, ...rest } = sampleTool;
    expect(hashOf(rest)).not.toBe(hashOf(sampleTool));
  });

  test.each([
    ['readOnlyHint', true],
    ['destructiveHint', false],
    ['idempotentHint', true],
    ['openWorldHint', false],
    ['readOnlyHint', null],
    ['title', ''],
  ])('an annotation %s that is %j', (hint, value) => {
    expect(hashOf({ ...bare, annotations: { [hint]: value } })).not.toBe(hashOf(bare));
  });

  test.each([[null], [[]], [''], [false]])('annotations that are no object: %j', (annotations) => {
    expect(hashOf({ ...bare, annotations })).not.toBe(hashOf(bare));
  });

  test('integers beyond what a double holds', () => {
    expect(pinHash('tool', '{"name":"a","max":9007199254740993}')).not.toEqual(
      pinHash('tool', '{"name":"a","max":9007199254740992}'),
    );
  });

  test('the same text for another kind, and a body that looks like a whole definition', () => {
    const text = JSON.stringify({ name: 'a' });
    const kinds = Object.keys(samples) as PinKind[];
    const all = kinds.flatMap((kind) => [pinHash(kind, text)?.hash, pinHash(kind, text)?.bodyHash]);
    expect(new Set(all).size).toBe(2 * kinds.length);
  });
});

describe('the hash of the body', () => {
  test('is equal if only the name differs', () => {
    expect(bodyOf({ ...sampleTool, name: 'other' })).toBe(bodyOf(sampleTool));
    expect(bodyOf({ ...sampleTool, title: 'other' })).not.toBe(bodyOf(sampleTool));
    expect(bodyOf({ uri: 'a', name: 'n' }, 'resource')).toBe(bodyOf({ uri: 'b', name: 'n' }, 'resource'));
    expect(bodyOf({ uri: 'a', name: 'n' }, 'resource')).not.toBe(bodyOf({ uri: 'a', name: 'm' }, 'resource'));
  });
});

test.each([
  ['it is not JSON', '{"name":'],
  ['a duplicate key', '{"name":"a","name":"b"}'],
  ['a duplicate key, once with escapes', '{"name":"a","n\\u0061me":"b"}'],
  ['it is nested too deep', `${'['.repeat(65)}${']'.repeat(65)}`],
])('a text with this fault has no hash: %s', (_name, text) => {
  expect(pinHash('tool', text)).toBeUndefined();
  expect(pinHash('tool', Buffer.from([0x22, 0xff, 0x22]))).toBeUndefined();
});

test('X18 a definition with too many values has no hash, and is read no further', () => {
  // The tool, its name, the schema and the list are four of the values.
  const tool = (count: number) => `{"name":"a","inputSchema":{"anyOf":[${'{},'.repeat(count - 1)}{}]}}`;
  expect(pinHash('tool', tool(LIMITS.toolValues - 4))).toBeDefined();
  expect(pinHash('tool', tool(LIMITS.toolValues - 3))).toBeUndefined();
  // Reading on would refuse it as broken text: the same result, but after more time.
  expect(() => canonicalText(`[${'0,'.repeat(10)}`, 5)).toThrow('has too many values');
});
