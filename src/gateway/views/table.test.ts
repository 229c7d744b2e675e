import { expect, test } from 'vitest';
import { type Entry, ListPart } from './server-lists.js';
import { Tables } from './table.js';

let contents = 0;
const entry = (key: string, server = 's', name = key): Entry => ({
  ...{ server, key, name, preferredName: name, content: ++contents },
  item: { key, raw: Buffer.from(`{"name":"${key}"}`) },
});
const part = (...entries: Entry[]) => new ListPart(entries, false);
const make = () => new Tables(() => {});

test('the same parts give one table in all views', () => {
  const tables = make();
  const [a, b] = [part(entry('a')), part(entry('b', 't'))];
  const table = tables.of('names', [a, b], false, 0, true);
  expect(tables.of('names', [a, b], false, 0, true)).toBe(table);
  for (const other of [
    tables.of('names', [b, a], false, 0, true),
    tables.of('names', [a], false, 0, true),
    tables.of('names', [a, part(entry('b', 't'))], false, 0, true),
    tables.of('uris', [a, b], false, 0, true),
    tables.of('names', [a, b], true, 0, true),
    tables.of('names', [a, b], false, 1, true),
    tables.of('names', [a, b], false, 0, false),
  ])
    expect(other).not.toBe(table);
});

test('many parts are distinguished, although only the hash of their ids is stored', () => {
  const tables = make();
  const parts = Array.from({ length: 200 }, (_, i) => part(entry(`t${i}`)));
  const table = tables.of('names', parts, false, 0, true);
  expect(tables.of('names', [...parts], false, 0, true)).toBe(table);
  expect(tables.of('names', parts.slice(1), false, 0, true)).not.toBe(table);
});

test('a list that needs pages is in the order of servers and keys, whatever the order of its parts', () => {
  const parts = [part(entry('b', 'y'), entry('a', 'y')), part(), part(entry('d', 'x'), entry('c', 'x'))];
  const sorted = (table: { sorted: readonly Entry[] }) => table.sorted.map(({ server, key }) => `${server} ${key}`);
  expect(sorted(make().of('names', parts, false, 0, true))).toEqual(['x c', 'x d', 'y a', 'y b']);
  const shared = [part(entry('u', 'y'), entry('t', 'y')), part(entry('u', 'x'))];
  const table = make().of('uris', shared, false, 0, true);
  expect(sorted(table)).toEqual(['x u', 'y t', 'y u']);
  expect(table.sorted.map(({ name }) => name)).toEqual(['hostler://x/u', 't', 'hostler://y/u']);
});

test('parts are equal if their entries have the same content, even in different objects', () => {
  const [a, b] = [entry('a'), entry('b')];
  expect(part(a, b).hasSameEntries(part({ ...a, content: 0 }, b))).toBe(true);
  expect(part(a, b).hasSameEntries(part(b, a))).toBe(false);
  expect(part(a).hasSameEntries(part({ ...a, content: 0, name: 'z' }))).toBe(false);
  expect(part(a).hasSameEntries(part({ ...a, content: 0, server: 't' }))).toBe(false);
  expect(
    part(a).hasSameEntries(part({ ...a, content: 0, item: { key: 'a', raw: Buffer.from('{"name":"a","x":1}') } })),
  ).toBe(false);
});
