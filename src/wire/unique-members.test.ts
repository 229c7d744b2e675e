import { describe, expect, test } from 'vitest';
import { singleMembers, uniqueMembers } from './unique-members.js';

const texts = (found: (Buffer | undefined)[] | undefined) => found?.map((each) => each?.toString('utf8'));

describe('members of params', () => {
  test('in the order of the keys, undefined for what is not there', () => {
    const bytes = Buffer.from('{ "b" : [1, 2], "a":{"a":3} , "\\u0063":"x" }');
    expect(texts(uniqueMembers(bytes, ['a', 'b', 'c', 'd']))).toEqual(['{"a":3}', '[1, 2]', '"x"', undefined]);
    expect(texts(singleMembers(bytes, ['c', 'a']))).toEqual(['"x"', '{"a":3}']);
  });

  test('one that is asked for and stands twice is refused, or nobody’s; another is no matter', () => {
    const bytes = Buffer.from('{"a":1,"b":2,"\\u0061":3}');
    expect(uniqueMembers(bytes, ['b', 'a'])).toBeUndefined();
    expect(texts(singleMembers(bytes, ['a', 'b']))).toEqual([undefined, '2']);
    expect(texts(uniqueMembers(bytes, ['b']))).toEqual(['2']);
  });

  test.each(['[1]', '1', '{"a":1', `{${Array.from({ length: 1_001 }, (_, i) => `"k${i}":0`).join()}}`])(
    'nothing of what is no object, or has too many: %s',
    (text) => {
      expect(uniqueMembers(Buffer.from(text), ['a'])).toBeUndefined();
      expect(singleMembers(Buffer.from(text), ['a'])).toEqual([undefined]);
    },
  );

  test('the last walk is of the same bytes only', () => {
    const first = Buffer.from('{"a":1}');
    const second = Buffer.from('{"a":2,"b":3}');
    expect(texts(uniqueMembers(first, ['a']))).toEqual(['1']);
    expect(texts(uniqueMembers(second, ['a', 'b']))).toEqual(['2', '3']);
    expect(texts(uniqueMembers(first, ['a', 'b']))).toEqual(['1', undefined]);
    const large = Buffer.from(`{"a":"${'x'.repeat(70_000)}"}`);
    expect(uniqueMembers(large, ['a'])?.[0]?.length).toBe(70_002);
    expect(uniqueMembers(large, ['a'])?.[0]?.length).toBe(70_002);
  });
});
