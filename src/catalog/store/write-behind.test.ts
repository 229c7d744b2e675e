import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { type PendingEntry, queuedMax, WriteBehind } from './write-behind.js';

const nothing = () => [][Symbol.iterator]() as Iterator<undefined, void>;
/** An entry that is written in one step. */
const once = (run: () => void) => (): Iterator<undefined, void> => ({
  next: () => {
    run();
    return { done: true, value: undefined };
  },
});

/** What happened, by turn of the event loop. */
function watch() {
  const later = new WriteBehind();
  const done: string[] = [];
  const row = (name: string, fails?: 'text' | 'write'): PendingEntry => {
    const step = (what: 'text' | 'write') => {
      if (fails === what) throw new Error(`${what} of ${name}`);
      done.push(`${what} ${name}`);
    };
    function* write() {
      step('text');
      yield;
      step('write');
    }
    return { value: name, write, onFailed: (error) => done.push(String(error)) };
  };
  const turn = async () => {
    await nextTurn();
    return done.splice(0);
  };
  return { later, done, row, turn };
}

test('X18 each turn runs one step', async () => {
  const { later, row, turn } = watch();
  later.put('a', row('A'), true);
  later.put('b', row('B'), true);
  const turns: string[][] = [];
  for (let i = 0; i < 6; i++) turns.push(await turn());
  expect(turns.flat()).toEqual(['text A', 'write A', 'text B', 'write B']);
  expect(Math.max(...turns.map(({ length }) => length))).toBe(1);
  expect([later.get('a'), later.get('b')]).toEqual([undefined, undefined]);
});

test('readers get a queued entry; a newer entry or an immediate write of its key replaces it', async () => {
  const { later, row, turn } = watch();
  later.put('a', row('A'), true);
  expect(later.get('a')).toBe('A');
  await turn();
  later.put('a', row('A2'), true);
  later.put('b', row('B'), true);
  later.writeOrThrow('b', nothing);
  later.put('c', row('C'), true);
  later.put('c', row('C2'), false);
  const done: string[] = [];
  for (let i = 0; i < 6; i++) done.push(...(await turn()));
  expect(done.filter((each) => each.startsWith('write'))).toEqual(['write C2', 'write A2']);
  expect(later.get('b')).toBeUndefined();
});

test('flush writes each queued entry once', async () => {
  const { later, done, row, turn } = watch();
  later.put('a', row('A'), true);
  later.put('b', row('B', 'write'), true);
  later.flush();
  expect(done.splice(0)).toEqual(['text A', 'write A', 'text B', 'Error: write of B']);
  expect([...(await turn()), ...(await turn()), ...(await turn())]).toEqual([]);
});

test('a failure is reported, and the following entries are written', async () => {
  const { later, row, turn } = watch();
  later.put('a', row('A', 'text'), true);
  later.put('b', row('B', 'write'), true);
  later.put('c', row('C'), true);
  const done: string[] = [];
  for (let i = 0; i < 8; i++) done.push(...(await turn()));
  expect(done).toEqual(['Error: text of A', 'text B', 'Error: write of B', 'text C', 'write C']);
});

test('finish reports a failed entry until another one with its key was written', async () => {
  const { later, done, row, turn } = watch();
  later.put('a', row('A', 'write'), true);
  later.put('b', { ...row('B'), write: once(() => done.push(`B after A: ${later.finish('a')}`)) }, true);
  const turns: string[] = [];
  for (let i = 0; i < 6; i++) turns.push(...(await turn()));
  expect(turns).toContain('B after A: false');
  expect([later.get('a'), later.finish('a')]).toEqual([undefined, false]);
  later.put('a', row('A2', 'text'), true);
  expect([later.finish('a'), later.finish('a')]).toEqual([false, false]);
  later.put('a', row('A3'), true);
  later.put('a', row('A4', 'write'), false);
  expect([later.get('a'), later.finish('a')]).toEqual([undefined, false]);
  later.writeOrThrow('a', nothing);
  expect([later.get('a'), later.finish('a')]).toEqual([undefined, true]);
});

test('writeOrThrow that fails leaves the queue as it was', () => {
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

test('if a newer entry fails, an older entry that is still valid is written, and finish reports the failure', async () => {
  const { later, row, turn } = watch();
  later.put('b', row('B'), true);
  later.put('b', row('B2', 'write'), false);
  expect(later.get('b')).toBeUndefined();
  await turn();
  later.put('a', row('A'), true);
  later.put('a', { ...row('A2', 'write'), fallsBackToOlder: true }, false);
  expect([later.get('a'), later.finish('a')]).toEqual(['A', false]);
  const done: string[] = [];
  for (let i = 0; i < 4; i++) done.push(...(await turn()));
  expect(done.filter((each) => each.startsWith('write'))).toEqual(['write A']);
  expect([later.get('a'), later.finish('a')]).toEqual([undefined, false]);
});

test('flush writes an entry before the one that must follow it', () => {
  const { later, done, row } = watch();
  later.put(
    'list',
    {
      ...row('list'),
      write: once(() => done.push(`list, pins written: ${later.finish('pins')}`)),
    },
    true,
  );
  later.put('pins', row('pins', 'write'), true);
  later.flush();
  expect(done).toEqual(['text pins', 'Error: write of pins', 'list, pins written: false']);
});

test(`${queuedMax} entries wait at most: one more is written at once`, () => {
  const { later, done, row } = watch();
  for (let i = 0; i < queuedMax; i++) later.put(`p${i}`, row(`${i}`), true);
  expect(done).toEqual([]);
  later.put('more', row('more'), true);
  expect(done).toEqual(['text more', 'write more']);
  later.put('p0', row('again'), true);
  expect(done).toHaveLength(2);
  later.flush();
});

test('an entry that is partly written is continued when it must be finished', async () => {
  const { later, row, turn, done } = watch();
  later.put('a', row('A'), true);
  expect(await turn()).toEqual(['text A']);
  expect([later.finish('a'), done]).toEqual([true, ['write A']]);
});
