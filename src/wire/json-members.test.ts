import { expect, test } from 'vitest';
import { memberString, membersBytes } from './json-members.js';

const textsOf = (text: string, ...keys: string[]) =>
  membersBytes(Buffer.from(text), keys).map((value) => value?.toString());

test.each<[string, (string | undefined)[]]>([
  ['{"a":[1, 2],"b":"x","c":{}}', ['[1, 2]', '"x"']],
  ['{"b":null, "\\u0061" : 7 }', ['7', 'null']],
  ['{"a":1,"b":2,"a":1}', [undefined, '2']],
  ['{"a":1,"a":2,"a":3}', [undefined, undefined]],
  ['{"A":1,"ab":2}', [undefined, undefined]],
  ['{"a":1,', [undefined, undefined]],
  ['[1]', [undefined, undefined]],
])('of %s several members are found as each alone', (text, values) => {
  expect(textsOf(text, 'a', 'b')).toEqual(values);
  expect([...textsOf(text, 'a'), ...textsOf(text, 'b')]).toEqual(values);
});

test('a member is a string or none', () => {
  const bytes = Buffer.from('{"a":"x\\n","b":5}');
  expect([memberString(bytes, 'a'), memberString(bytes, 'b'), memberString(bytes, 'c')]).toEqual([
    'x\n',
    undefined,
    undefined,
  ]);
});
