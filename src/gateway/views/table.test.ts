import { expect, test } from 'vitest';
import { type Entry, Tables } from './table.js';

const item = (key: string, text = `{"name":"${key}"}`) => ({ key, raw: Buffer.from(text) });
const entry = (of: Entry['item'], name = of.key, server = 's'): Entry => ({ server, key: of.key, name, item: of });

test('the same items under the same names are one table, whoever shows them', () => {
  const tables = new Tables();
  const [a, b] = [item('a'), item('b')];
  const table = tables.intern([entry(a), entry(b)], 0, true);
  expect(tables.intern([entry(a), entry(b)], 0, true)).toBe(table);
  for (const other of [
    tables.intern([entry(b), entry(a)], 0, true),
    tables.intern([entry(a)], 0, true),
    tables.intern([entry(a), entry(b, 'c')], 0, true),
    tables.intern([entry(a), entry(b, 'b', 't')], 0, true),
    tables.intern([entry(a), entry(b)], 1, true),
    tables.intern([entry(a), entry(b)], 0, false),
  ])
    expect(other).not.toBe(table);
});

test('a name that is written like several entries is none of them', () => {
  const tables = new Tables();
  const [a, b] = [item('a'), item('b')];
  const two = tables.intern([entry(a, 'a'), entry(b, 'b')], 0, true);
  for (const name of ['a\n2 s b', 'a\n2 s 1 b']) expect(tables.intern([entry(a, name)], 0, true)).not.toBe(two);
});

test('the digest is of what the items hold, not of which they are', () => {
  const digestOf = (...entries: Entry[]) => new Tables().intern(entries, 0, true).digest;
  expect(digestOf(entry(item('a')))).toBe(digestOf(entry(item('a'))));
  expect(digestOf(entry(item('a')))).not.toBe(digestOf(entry(item('a', '{"name":"a","x":1}'))));
  expect(digestOf(entry(item('a')))).not.toBe(digestOf(entry(item('a'), 'b')));
});
