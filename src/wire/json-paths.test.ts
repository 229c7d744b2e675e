import { expect, test } from 'vitest';
import { LIMITS } from '../kernel/limits.js';
import { valuesAt } from './json-paths.js';

const at = (text: string, ...paths: string[][]) => valuesAt(Buffer.from(text), paths).map(String);

test('each path leads to its value, also where some share their beginning or one ends where another goes on', () => {
  const text = '{"a":{"b":1,"c":{"d":"x"}},"größe":null,"e\\u0066":[2]}';
  expect(at(text, ['a', 'b'], ['a', 'c', 'd'], ['a', 'c'], ['größe'], ['ef'])).toEqual([
    ...['1', '"x"', '{"d":"x"}', 'null', '[2]'],
  ]);
  expect(at(text, ['b'], ['a', 'x'], ['größe', 'a'], ['ef', '0'])).toEqual(Array(4).fill('absent'));
  expect([valuesAt(undefined, [['a']]), at('[1]', ['0'])]).toEqual([['absent'], ['absent']]);
  expect([at(' \n{"a":1}', ['a']), at('{ "a" : 1 , "b" : {} }', ['a'], ['b'])]).toEqual([['1'], ['1', '{}']]);
});

test('what stands twice, below what does, or among too many, is unclear', () => {
  expect(at('{"a":1,"b":2,"\\u0061":1}', ['a'], ['b'])).toEqual(['unclear', '2']);
  expect(at('{"a":{"b":1},"a":{}}', ['a', 'b'], ['c'])).toEqual(['unclear', 'absent']);
  expect([at('{"a":1,"b":tru}', ['a']), at('{"a":1', ['a']), at('{"a":1 "b":2}', ['b'])]).toEqual(
    Array(3).fill(['unclear']),
  );
  const many = Array.from({ length: LIMITS.members }, (_, i) => `"k${i}":0`).join();
  expect(at(`{"a":1,"in":{"b":1},${many}}`, ['a'], ['in', 'b'], ['c'])).toEqual(Array(3).fill('unclear'));
});
