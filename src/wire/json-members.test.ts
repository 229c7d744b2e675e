import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { LIMITS } from '../kernel/limits.js';
import { Envelope, scanEnvelope } from './envelope.js';
import { memberString, membersBytes, memberText, uniqueMembers, valuesAt } from './json-members.js';

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
])('in %s several members are found in the same way as each alone', (text, values) => {
  expect(textsOf(text, 'a', 'b')).toEqual(values);
  expect([...textsOf(text, 'a'), ...textsOf(text, 'b')]).toEqual(values);
});

test('a member that is no string is not found as a string', () => {
  const bytes = Buffer.from('{"a":"x\\n","b":5}');
  expect([memberString(bytes, 'a'), memberString(bytes, 'b'), memberString(bytes, 'c')]).toEqual([
    'x\n',
    undefined,
    undefined,
  ]);
});

const texts = (found: (Buffer | undefined)[] | undefined) => found?.map((each) => each?.toString('utf8'));

describe('members of params', () => {
  test('are returned in the order of the requested keys, undefined if missing', () => {
    const bytes = Buffer.from('{ "b" : [1, 2], "a":{"a":3} , "\\u0063":"x" }');
    expect(texts(uniqueMembers(bytes, ['a', 'b', 'c', 'd']))).toEqual(['{"a":3}', '[1, 2]', '"x"', undefined]);
    expect(texts(membersBytes(bytes, ['c', 'a']))).toEqual(['"x"', '{"a":3}']);
  });

  test('a requested duplicate member is refused or has no value; other duplicates do not matter', () => {
    const bytes = Buffer.from('{"a":1,"b":2,"\\u0061":3}');
    expect(uniqueMembers(bytes, ['b', 'a'])).toBeUndefined();
    expect(texts(membersBytes(bytes, ['a', 'b']))).toEqual([undefined, '2']);
    expect(texts(uniqueMembers(bytes, ['b']))).toEqual(['2']);
  });

  test.each(['[1]', '1', '{"a":1', `{${Array.from({ length: 1_001 }, (_, i) => `"k${i}":0`).join()}}`])(
    'nothing is found in a text that is no object or has too many members: %s',
    (text) => {
      expect(uniqueMembers(Buffer.from(text), ['a'])).toBeUndefined();
      expect(membersBytes(Buffer.from(text), ['a'])).toEqual([undefined]);
    },
  );
});

describe('params of a scanned request', () => {
  const keys = ['a', 'b', 'c'];
  const scanned = (params: string) => {
    const envelope = new Envelope();
    const message = Buffer.from(` {"id":1, "params" : ${params} ,"jsonrpc":"2.0","method":"m"}`);
    expect(scanEnvelope(message, 0, message.length, envelope)).toBeUndefined();
    return envelope;
  };
  const lookups = (params: Buffer) => [texts(uniqueMembers(params, keys)), texts(membersBytes(params, keys))];

  test('have the same members as in a scan of the params alone', () => {
    const member = fc.tuple(fc.constantFrom('a', 'b', '\\u0061', 'c', 'ab'), fc.jsonValue({ maxDepth: 2 }));
    fc.assert(
      fc.property(fc.array(member, { maxLength: 5 }), (members) => {
        const text = `{ ${members.map(([key, value]) => `"${key}" : ${JSON.stringify(value)}`).join(' , ')} }`;
        const params = scanned(text).payload() as Buffer;
        expect(params.toString()).toBe(text);
        expect(lookups(params)).toEqual(lookups(Buffer.from(text)));
      }),
    );
  });

  test.each([
    ['params with too many members', `{"a":1,${Array.from({ length: LIMITS.members }, (_, i) => `"k${i}":0`).join()}}`],
    ['params that are no object', '[1]'],
    ['large params', `{"a":"${'x'.repeat(70_000)}"}`],
  ])('are looked up as in the params alone: %s', (_name, text) => {
    const params = scanned(text).payload() as Buffer;
    expect(lookups(params)).toEqual(lookups(Buffer.from(text)));
  });

  test('keep their own members when another message is scanned', () => {
    const [first, second] = [scanned('{"a":1}'), scanned('{"a":2,"b":3}')];
    const one = first.payload() as Buffer;
    expect(lookups(one)[1]).toEqual(['1', undefined, undefined]);
    expect(first.payload()).toBe(one);
    expect(lookups(second.payload() as Buffer)[1]).toEqual(['2', '3', undefined]);
    expect(lookups(one)[1]).toEqual(['1', undefined, undefined]);
  });

  test('give the same view of a member to each lookup', () => {
    const params = scanned('{"a":1,"b":2}').payload() as Buffer;
    expect(membersBytes(params, ['b'])[0]).toBe(uniqueMembers(params, ['a', 'b'])?.[1]);
  });
});

const at = (text: string, ...paths: string[][]) => valuesAt(Buffer.from(text), paths).map(String);

test('each path leads to its value, also if paths share their beginning or one is the beginning of another', () => {
  const text = '{"a":{"b":1,"c":{"d":"x"}},"größe":null,"e\\u0066":[2]}';
  expect(at(text, ['a', 'b'], ['a', 'c', 'd'], ['a', 'c'], ['größe'], ['ef'])).toEqual([
    ...['1', '"x"', '{"d":"x"}', 'null', '[2]'],
  ]);
  expect(at(text, ['b'], ['a', 'x'], ['größe', 'a'], ['ef', '0'])).toEqual(Array(4).fill('absent'));
  expect([valuesAt(undefined, [['a']]), at('[1]', ['0'])]).toEqual([['absent'], ['absent']]);
  expect([at(' \n{"a":1}', ['a']), at('{ "a" : 1 , "b" : {} }', ['a'], ['b'])]).toEqual([['1'], ['1', '{}']]);
});

test('a value is ambiguous if its key or a key above it is a duplicate, or among too many members', () => {
  expect(at('{"a":1,"b":2,"\\u0061":1}', ['a'], ['b'])).toEqual(['unclear', '2']);
  expect(at('{"a":{"b":1},"a":{}}', ['a', 'b'], ['c'])).toEqual(['unclear', 'absent']);
  expect([at('{"a":1,"b":tru}', ['a']), at('{"a":1', ['a']), at('{"a":1 "b":2}', ['b'])]).toEqual(
    Array(3).fill(['unclear']),
  );
  const many = Array.from({ length: LIMITS.members }, (_, i) => `"k${i}":0`).join();
  expect(at(`{"a":1,"in":{"b":1},${many}}`, ['a'], ['in', 'b'], ['c'])).toEqual(Array(3).fill('unclear'));
});

test('X18 nothing is found among more than 1,000 members', () => {
  const object = (count: number) =>
    Buffer.from(`{"a":1,${Array.from({ length: count - 1 }, (_, i) => `"k${i}":0`).join()}}`);
  expect([memberText(object(1_000), 'a'), memberText(object(1_001), 'a')]).toEqual(['1', undefined]);
  expect(membersBytes(object(1_000), ['a'])[0]?.toString()).toBe('1');
  expect(membersBytes(object(1_001), ['a'])).toEqual([undefined]);
});
