import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { type LaterRow, LaterWrites, rowsMax } from './write-behind.js';

/** What happened, by turn of the event loop. */
function watch() {
  const later = new LaterWrites();
  const done: string[] = [];
  const row = (name: string, fails?: 'text' | 'write'): LaterRow => {
    const step = (what: 'text' | 'write') => {
      if (fails === what) throw new Error(`${what} of ${name}`);
      done.push(`${what} ${name}`);
      return name;
    };
    return {
      row: name,
      text: () => step('text'),
      write: () => step('write'),
      onFailed: (error) => done.push(String(error)),
    };
  };
  const turn = async () => {
    await nextTurn();
    return done.splice(0);
  };
  return { later, done, row, turn };
}

test('X18 each turn makes one text, or writes one', async () => {
  const { later, row, turn } = watch();
  later.put('a', row('A'), true);
  later.put('b', row('B'), true);
  const turns: string[][] = [];
  for (let i = 0; i < 6; i++) turns.push(await turn());
  expect(turns.flat()).toEqual(['text A', 'write A', 'text B', 'write B']);
  expect(Math.max(...turns.map(({ length }) => length))).toBe(1);
  expect([later.get('a'), later.get('b')]).toEqual([undefined, undefined]);
});

test('a row that waits is there for whoever asks; of two the later is written, and of one whose place is written at once none', async () => {
  const { later, row, turn } = watch();
  later.put('a', row('A'), true);
  expect(later.get('a')).toBe('A');
  await turn();
  later.put('a', row('A2'), true);
  later.put('b', row('B'), true);
  later.writeOrThrow('b', () => {});
  later.put('c', row('C'), true);
  later.put('c', row('C2'), false);
  const done: string[] = [];
  for (let i = 0; i < 6; i++) done.push(...(await turn()));
  expect(done.filter((each) => each.startsWith('write'))).toEqual(['write C2', 'write A2']);
  expect(later.get('b')).toBeUndefined();
});

test('what waits is written at once when it must be, once', async () => {
  const { later, done, row, turn } = watch();
  later.put('a', row('A'), true);
  later.put('b', row('B', 'write'), true);
  later.flush();
  expect(done.splice(0)).toEqual(['text A', 'write A', 'text B', 'Error: write of B']);
  expect([...(await turn()), ...(await turn()), ...(await turn())]).toEqual([]);
});

test('one that fails is told, and those behind it are written', async () => {
  const { later, row, turn } = watch();
  later.put('a', row('A', 'text'), true);
  later.put('b', row('B', 'write'), true);
  later.put('c', row('C'), true);
  const done: string[] = [];
  for (let i = 0; i < 8; i++) done.push(...(await turn()));
  expect(done).toEqual(['Error: text of A', 'text B', 'Error: write of B', 'text C', 'write C']);
});

test('what must not come before a row hears that it could not be written, until another in its place was', async () => {
  const { later, done, row, turn } = watch();
  later.put('a', row('A', 'write'), true);
  later.put('b', { ...row('B'), write: () => done.push(`B after A: ${later.finish('a')}`) }, true);
  const turns: string[] = [];
  for (let i = 0; i < 6; i++) turns.push(...(await turn()));
  expect(turns).toContain('B after A: false');
  expect([later.get('a'), later.finish('a')]).toEqual([undefined, false]);
  later.put('a', row('A2', 'text'), true);
  expect([later.finish('a'), later.finish('a')]).toEqual([false, false]);
  later.put('a', row('A3'), true);
  later.put('a', row('A4', 'write'), false);
  expect([later.get('a'), later.finish('a')]).toEqual([undefined, false]);
  later.writeOrThrow('a', () => {});
  expect([later.get('a'), later.finish('a')]).toEqual([undefined, true]);
});

test('where whoever asks is to hear that it failed, what waits and what was written count as before', () => {
  const { later, done, row } = watch();
  const fail = () =>
    later.writeOrThrow('a', () => {
      throw new Error('busy');
    });
  expect(fail).toThrow('busy');
  expect(later.finish('a')).toBe(true);
  later.put('a', row('A'), true);
  expect(fail).toThrow('busy');
  expect([later.get('a'), later.finish('a'), done]).toEqual(['A', true, ['text A', 'write A']]);
  later.put('a', row('A2', 'write'), false);
  expect(fail).toThrow('busy');
  expect(later.finish('a')).toBe(false);
});

test('where the newer of two fails, the older is written if it is good for something, and does not count as the newer', async () => {
  const { later, row, turn } = watch();
  later.put('b', row('B'), true);
  later.put('b', row('B2', 'write'), false);
  expect(later.get('b')).toBeUndefined();
  await turn();
  later.put('a', row('A'), true);
  later.put('a', { ...row('A2', 'write'), isOlderGood: true }, false);
  expect([later.get('a'), later.finish('a')]).toEqual(['A', false]);
  const done: string[] = [];
  for (let i = 0; i < 4; i++) done.push(...(await turn()));
  expect(done.filter((each) => each.startsWith('write'))).toEqual(['write A']);
  expect([later.get('a'), later.finish('a')]).toEqual([undefined, false]);
});

test('what must come first does so also when all is written, wherever it stands', () => {
  const { later, done, row } = watch();
  later.put(
    'list',
    {
      ...row('list'),
      write: () => done.push(`list, pins written: ${later.finish('pins')}`),
    },
    true,
  );
  later.put('pins', row('pins', 'write'), true);
  later.flush();
  expect(done).toEqual(['text list', 'text pins', 'Error: write of pins', 'list, pins written: false']);
});

test(`${rowsMax} wait at most: one more is written at once`, () => {
  const { later, done, row } = watch();
  for (let i = 0; i < rowsMax; i++) later.put(`p${i}`, row(`${i}`), true);
  expect(done).toEqual([]);
  later.put('more', row('more'), true);
  expect(done).toEqual(['text more', 'write more']);
  later.put('p0', row('again'), true);
  expect(done).toHaveLength(2);
  later.flush();
});
