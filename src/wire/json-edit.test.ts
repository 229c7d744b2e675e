import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { HostError } from '../kernel/errors.js';
import { editMembers, type MemberEdits, spliceMeta } from './json-edit.js';

const splice = (params: string | undefined, ...edits: [string, string | undefined][]) =>
  spliceMeta(params === undefined ? undefined : Buffer.from(params), edits).toString();

describe('spliceMeta: a member of _meta', () => {
  test.each([
    [undefined, '{"_meta":{"a":1}}'],
    ['{}', '{"_meta":{"a":1}}'],
    [' { } ', ' {"_meta":{"a":1} } '],
    ['{"name":"x"}', '{"_meta":{"a":1},"name":"x"}'],
    ['{"name":"x","_meta":{}}', '{"name":"x","_meta":{"a":1}}'],
    ['{"_meta":{"b":2,"a":0}}', '{"_meta":{"a":1,"b":2}}'],
    ['{"_meta":{"a":0},"n":18446744073709551615}', '{"_meta":{"a":1},"n":18446744073709551615}'],
    ['{"_meta":{"\\u0061":0}}', '{"_meta":{"a":1}}'],
    ['{"x":{"_meta":{"a":0}}}', '{"_meta":{"a":1},"x":{"_meta":{"a":0}}}'],
  ])('is set: %s → %s', (before, after) => {
    expect(splice(before, ['a', '1'])).toBe(after);
  });

  test('is set also with a name that is not ASCII', () => {
    expect(splice('{"_meta":{"é":0,"\\u00e9":0,"b":2}}', ['é', '1'])).toBe('{"_meta":{"é":1,"b":2}}');
  });

  test('is removed', () => {
    expect(splice('{"_meta":{"a":0,"b":2}}', ['a', undefined])).toBe('{"_meta":{"b":2}}');
    expect(splice('{"_meta":{"a":0}}', ['a', undefined])).toBe('{"_meta":{}}');
  });

  test('is set, and all else parses to the same value', () => {
    const params = fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 3 }));
    fc.assert(
      fc.property(params, (value) => {
        const { _meta, ...rest } = value as Record<string, unknown>;
        const before = JSON.stringify({ ...rest, _meta: { old: 1, a: [{}] } });
        const after = JSON.parse(splice(before, ['a', '1'])) as Record<string, unknown>;
        expect(after).toEqual({ ...JSON.parse(before), _meta: { old: 1, a: 1 } });
      }),
    );
  });
});

describe('params that cannot be spliced are refused', () => {
  test.each(['[]', '"x"', '{"_meta":1}', '{"_meta":null}', '{"_meta":{},"_meta":{}}', '{"a":}', '{} x'])(
    '%s',
    (params) => {
      expect(() => splice(params, ['a', '1'])).toThrow(HostError);
    },
  );
});

const edit = (text: string, edits: MemberEdits) => editMembers(Buffer.from(text), edits)?.toString();

describe('editMembers', () => {
  test.each<[string, string, MemberEdits, string | undefined]>([
    [
      'replaces in place',
      '{"a":1,"name":"x", "b":12345678901234567890}',
      [['name', '"y"']],
      '{"a":1,"name":"y", "b":12345678901234567890}',
    ],
    ['puts a new member in front', '{"a":1}', [['n', '2']], '{"n":2,"a":1}'],
    [
      'puts a single member into an empty object',
      '{ }',
      [
        ['n', '2'],
        ['m', '3'],
      ],
      '{"n":2,"m":3}',
    ],
    ['removes the first', '{"a":1,"b":2,"c":3}', [['a', undefined]], '{"b":2,"c":3}'],
    ['removes the middle', '{"a":1,"b":2,"c":3}', [['b', undefined]], '{"a":1,"c":3}'],
    ['removes the last', '{"a":1,"b":2,"c":3}', [['c', undefined]], '{"a":1,"b":2}'],
    [
      'removes all',
      '{"a":1,"b":2}',
      [
        ['b', undefined],
        ['a', undefined],
      ],
      '{}',
    ],
    [
      'removes, replaces and adds in one call',
      '{"a":1,"b":2,"c":3,"d":4}',
      [
        ['b', undefined],
        ['c', '"!"'],
        ['e', '5'],
      ],
      '{"e":5,"a":1,"c":"!","d":4}',
    ],
    ['removes a duplicate member', '{"a":1,"b":2,"a":3}', [['a', undefined]], '{"b":2}'],
    ['does not replace a duplicate member', '{"a":1,"a":3}', [['a', '0']], undefined],
    ['finds a key with escapes', '{"\\u0061":1}', [['a', '0']], '{"\\u0061":0}'],
    ['leaves nested members alone', '{"x":{"a":1}}', [['a', undefined]], '{"x":{"a":1}}'],
    ['refuses a text that is not an object', '[1]', [['a', '0']], undefined],
  ])('%s', (_title, text, edits, expected) => {
    expect(edit(text, edits)).toBe(expected);
  });

  test('reads each edit a few times only, however many members there are', () => {
    let reads = 0;
    const keys = Array.from({ length: 500 }, (_, i) => `k${i}`);
    const edits = keys.map((key) => {
      const get = (target: readonly string[], member: string | symbol) => {
        if (member === '0') reads++;
        return Reflect.get(target, member);
      };
      return new Proxy<readonly [string, string]>([key, '{}'], { get });
    });
    const object = Object.fromEntries([...keys, 'other'].map((key) => [key, 1]));
    const expected = { ...Object.fromEntries(keys.map((key) => [key, {}])), other: 1 };
    expect(JSON.parse(edit(JSON.stringify(object), edits) ?? '')).toEqual(expected);
    expect(reads).toBeLessThanOrEqual(3 * keys.length);
  });

  test('means what the same edits on the parsed object mean', () => {
    const key = fc.constantFrom('a', 'b', 'c', 'd', 'é', 'f"g');
    const object = fc.dictionary(key, fc.jsonValue({ maxDepth: 2 }));
    const edits = fc.dictionary(fc.constantFrom('a', 'b', 'c', 'z'), fc.option(fc.integer(), { nil: undefined }));
    fc.assert(
      fc.property(object, edits, fc.constantFrom(undefined, 1), (value, changes, space) => {
        const list: MemberEdits = Object.entries(changes).map(([k, v]) => [k, v === undefined ? undefined : `${v}`]);
        const after = editMembers(Buffer.from(JSON.stringify(value, null, space)), list);
        expect(JSON.parse(String(after))).toEqual(JSON.parse(JSON.stringify({ ...value, ...changes })));
      }),
    );
  });
});
