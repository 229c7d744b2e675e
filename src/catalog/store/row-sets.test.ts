import Database from 'libsql';
import { describe, expect, test } from 'vitest';
import { RowNames, RowSets, rowSetSchema } from './row-sets.js';

test('many questions of one tick are one, and what is written meanwhile counts', async () => {
  let reads = 0;
  const rows = ['a'];
  const names = new RowNames(() => {
    reads++;
    return rows;
  });
  expect(['x', 'y'].map((name) => names.mayHave(name))).toEqual([true, true]);
  expect(reads).toBe(0);
  expect(['a', 'b', 'c'].map((name) => names.mayHave(name))).toEqual([true, false, false]);
  expect(reads).toBe(1);
  rows.push('b');
  names.changed();
  expect([names.mayHave('b'), reads]).toEqual([true, 2]);
  await Promise.resolve();
  rows.push('c');
  for (const name of ['x', 'y']) names.mayHave(name);
  expect([names.mayHave('c'), reads]).toEqual([true, 3]);
});

describe('row sets', () => {
  const open = (database = new Database(':memory:')) => {
    database.exec(rowSetSchema('word'));
    const sets = new RowSets<readonly string[], string>(database, {
      name: 'word',
      oldestBy: 'id',
      setsMax: 3,
      rowsOf: (words) => words.map((word) => ({ name: word.slice(0, 1), tag: `${word.length}`, content: word })),
      textOf: (word) => word,
      bytesOf: (word) => word.length,
      isSame: (a, b) => a === b,
    });
    const write = (owner: string, ...words: string[]) => [...sets.write(owner, 'head', words)].length;
    const load = (owner: string) => sets.load(owner, (rows) => rows.map(({ text }) => text));
    return { database, sets, write, load };
  };

  test('come back in their order, with their tags and head', () => {
    const { sets, write, load } = open();
    write('x', 'bb', 'a', 'cc');
    write('x', 'bb', 'd', 'ccc', 'a');
    expect(load('x')).toEqual(['bb', 'd', 'ccc', 'a']);
    expect([sets.head('x'), sets.tags('x')?.get('c'), load('y'), sets.tags('y')]).toEqual([
      'head',
      '3',
      undefined,
      undefined,
    ]);
    write('x');
    expect(load('x')).toEqual([]);
  });

  test('a set that another process has written is replaced as a whole', () => {
    const one = open();
    one.write('x', 'a', 'b');
    const other = open(one.database);
    other.write('x', 'z', 'b');
    one.write('x', 'a', 'b', 'c');
    expect([one.load('x'), other.load('x')]).toEqual([
      ['a', 'b', 'c'],
      ['a', 'b', 'c'],
    ]);
  });

  test('a new set is not there before its last batch, and an interrupted one is written again', () => {
    const { database, sets, write, load } = open();
    const words = ['a', 'b', 'c'].map((letter) => letter.repeat(200_000));
    const steps = sets.write('x', 'head', words);
    expect([steps.next().done, load('x'), sets.head('x')]).toEqual([false, undefined, undefined]);
    write('x', 'd', 'e');
    expect(load('x')).toEqual(['d', 'e']);
    expect(() => [...steps]).toThrow('another process has replaced the rows');
    expect(load('x')).toEqual(['d', 'e']);
    expect(database.prepare('SELECT count(*) AS n FROM word_rows').all()).toMatchObject([{ n: 2 }]);
  });

  test('a set that is there changes in one step, however large', () => {
    const { write, load } = open();
    write('x', 'a');
    const words = ['a', 'b', 'c'].map((letter) => letter.repeat(200_000));
    expect([write('x', ...words), load('x')?.length]).toEqual([0, 3]);
  });

  test('a failed write leaves the set as it was', () => {
    const { database, write, load } = open();
    write('x', 'a', 'b');
    database.exec("CREATE TRIGGER full BEFORE INSERT ON word_rows BEGIN SELECT RAISE(ABORT, 'no space'); END");
    expect(() => write('x', 'aa', 'c')).toThrow('no space');
    expect(load('x')).toEqual(['a', 'b']);
    database.exec('DROP TRIGGER full');
    write('x', 'aa', 'c');
    expect(load('x')).toEqual(['aa', 'c']);
  });

  test('beyond the maximum the oldest set is deleted with its rows', () => {
    const { database, sets, write } = open();
    for (const owner of ['1', '2', '3', '4']) write(owner, 'a');
    expect(['1', '2', '3', '4'].map((owner) => sets.head(owner))).toEqual([undefined, 'head', 'head', 'head']);
    expect(database.prepare('SELECT count(*) AS n FROM word_rows').all()).toMatchObject([{ n: 3 }]);
  });
});
