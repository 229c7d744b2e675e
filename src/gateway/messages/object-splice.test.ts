import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { editMembers, type MemberEdits } from './object-splice.js';

const edit = (text: string, edits: MemberEdits) => editMembers(Buffer.from(text), edits)?.toString();

describe('editMembers', () => {
  test.each<[string, string, MemberEdits, string | undefined]>([
    [
      'replaces in place',
      '{"a":1,"name":"x", "b":12345678901234567890}',
      [['name', '"y"']],
      '{"a":1,"name":"y", "b":12345678901234567890}',
    ],
    ['puts what was not there in front', '{"a":1}', [['n', '2']], '{"n":2,"a":1}'],
    [
      'puts it alone into an empty object',
      '{ }',
      [
        ['n', '2'],
        ['m', '3'],
      ],
      '{"n":2,"m":3}',
    ],
    ['takes out the first', '{"a":1,"b":2,"c":3}', [['a', undefined]], '{"b":2,"c":3}'],
    ['takes out the middle', '{"a":1,"b":2,"c":3}', [['b', undefined]], '{"a":1,"c":3}'],
    ['takes out the last', '{"a":1,"b":2,"c":3}', [['c', undefined]], '{"a":1,"b":2}'],
    [
      'takes out all',
      '{"a":1,"b":2}',
      [
        ['b', undefined],
        ['a', undefined],
      ],
      '{}',
    ],
    [
      'takes out, replaces and adds',
      '{"a":1,"b":2,"c":3,"d":4}',
      [
        ['b', undefined],
        ['c', '"!"'],
        ['e', '5'],
      ],
      '{"e":5,"a":1,"c":"!","d":4}',
    ],
    ['takes out what stands twice', '{"a":1,"b":2,"a":3}', [['a', undefined]], '{"b":2}'],
    ['does not guess which of two to replace', '{"a":1,"a":3}', [['a', '0']], undefined],
    ['finds a key in disguise', '{"\\u0061":1}', [['a', '0']], '{"\\u0061":0}'],
    ['leaves nested members alone', '{"x":{"a":1}}', [['a', undefined]], '{"x":{"a":1}}'],
    ['takes objects only', '[1]', [['a', '0']], undefined],
  ])('%s', (_title, text, edits, expected) => {
    expect(edit(text, edits)).toBe(expected);
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
