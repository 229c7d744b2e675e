import fc from 'fast-check';
import Database from 'libsql';
import { describe, expect, test } from 'vitest';
import { RowNames, RowSets, rowSetSchema } from './row-sets.js';

test('many lookups of one tick are one query, and find rows that are written in the same tick', async () => {
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

/** Calls `between` before each query outside of a transaction, and before and after each transaction. */
function interrupted(database: Database.Database, between: () => void): Database.Database {
  let isInside = false;
  const gap = () => {
    if (!isInside) between();
  };
  const whole =
    (run: () => unknown) =>
    (...args: []) => {
      gap();
      isInside = true;
      try {
        return run(...args);
      } finally {
        isInside = false;
        gap();
      }
    };
  const prepare = (sql: string) => {
    const statement = database.prepare(sql);
    const query =
      (name: 'all' | 'get' | 'run') =>
      (...args: unknown[]) => {
        gap();
        return statement[name](...args);
      };
    return { all: query('all'), get: query('get'), run: query('run') };
  };
  const transaction = (run: () => unknown) => {
    const own = database.transaction(run);
    return Object.assign(whole(own), { immediate: whole(own.immediate) });
  };
  return { prepare, transaction, pragma: (text: string) => database.pragma(text) } as unknown as Database.Database;
}

describe('row sets', () => {
  /** `between` runs wherever another process could write: before, between and after the transactions of a write or a load. */
  const open = (database = new Database(':memory:'), between = () => {}) => {
    database.exec(rowSetSchema('word'));
    const sets = new RowSets<readonly string[], string>(interrupted(database, between), {
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

  test('are read back in order, with their tags and head', () => {
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

  test('are read back unchanged, and an unchanged row is not written again', () => {
    const one = open();
    const words = ['\0"\\\n', '\u2028\ud83d\ude00', '{"n":12345678901234567890}'];
    one.write('x', ...words);
    for (const letter of 'defgh') one.write('x', words[0] as string, letter, ...words.slice(1));
    const next = open(one.database);
    expect(next.load('x')).toEqual([words[0], 'h', ...words.slice(1)]);
    expect([...(next.sets.tags('x') ?? [])]).toContainEqual(['\0', '4']);
    const count = () => (one.database.prepare('SELECT total_changes() AS n').get() as { n: number }).n;
    const before = count();
    next.write('x', words[0] as string, 'h', ...words.slice(1));
    // The set itself.
    expect(count() - before).toBe(1);
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

  test('AC-H20 two processes that write one set at the same time never mix their rows', () => {
    const words = fc.uniqueArray(
      fc.tuple(fc.constantFrom(...'abcdef'), fc.integer({ min: 1, max: 3 })).map(([letter, n]) => letter.repeat(n)),
      { selector: ([letter]) => letter },
    );
    // `gaps`: the other process writes after this many gaps of the step; with more gaps than exist it does not write.
    const step = fc.record({
      isLoad: fc.boolean(),
      isLoaded: fc.boolean(),
      mine: words,
      theirs: words,
      gaps: fc.nat({ max: 8 }),
    });
    fc.assert(
      fc.property(fc.array(step, { minLength: 1, maxLength: 8 }), (steps) => {
        const database = new Database(':memory:');
        let gap: () => void = () => {};
        const one = open(database, () => gap());
        const other = open(database);
        let last: readonly string[] | undefined;
        for (const { isLoad, isLoaded, mine, theirs, gaps } of steps) {
          let left = gaps;
          let between: string[] | undefined;
          gap = () => {
            if (left-- !== 0) return;
            between = theirs;
            // After a load it writes only the changed rows.
            if (isLoaded) other.load('x');
            other.write('x', ...theirs);
          };
          const loaded = isLoad ? one.load('x') : undefined;
          if (!isLoad) one.write('x', ...mine);
          gap = () => {};
          const found = open(database).load('x');
          const possible = isLoad ? [between ?? last] : between ? [mine, between] : [mine];
          expect(possible).toContainEqual(found);
          if (isLoad) expect([last, between]).toContainEqual(loaded);
          last = found;
        }
        database.close();
      }),
      { seed: 11, numRuns: 300 },
    );
  });

  test('a set that another process completes meanwhile is replaced in one step, not piece by piece', () => {
    const database = new Database(':memory:');
    const other = open(database);
    let gaps = 0;
    // The first gap comes before the set is looked up.
    const one = open(database, () => {
      if (++gaps === 2) other.write('x', 'a');
    });
    const words = ['a', 'b', 'c'].map((letter) => letter.repeat(200_000));
    expect([one.write('x', ...words), other.load('x')?.length]).toEqual([0, 3]);
  });

  test('a new set is not visible before its last batch, and an interrupted set is written again', () => {
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

  test('an existing set changes in one step, however large it is', () => {
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
