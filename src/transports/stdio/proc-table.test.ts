import { expect, test } from 'vitest';
import { parseStat, procTable } from './proc-table.js';
import { parseLine } from './ps-table.js';

const after = 'S 10 42 42 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 98765 1000 1 18446744073709551615';

test.each([
  ['a plain name', '42 (server)'],
  ['blanks and parentheses in the name', '42 (a) S 1 1 1 (b) )'],
  ['a newline in the name', '42 (a\n) b)'],
  ['an empty name', '42 ()'],
])('stat is read by its last parenthesis: %s', (_name, before) => {
  expect(parseStat(`${before} ${after}\n`)).toEqual({
    pid: 42,
    ppid: 10,
    pgid: 42,
    session: 42,
    startTicks: 98765,
    state: 'S',
  });
});

test.each(['', 'x', '42 (cut', '42 (cut) S 1', '-1 (a) S 1'])('what is no stat line is nothing: %j', (text) => {
  expect(parseStat(text)).toBeUndefined();
});

test.runIf(process.platform === 'linux')('the table knows this very process', () => {
  const table = procTable();
  expect(table.read(process.pid)).toMatchObject({ pid: process.pid, ppid: process.ppid });
  expect(table.living().some(({ pid }) => pid === process.pid)).toBe(true);
  expect(table.bootId()).toMatch(/^[0-9a-f-]{36}$/);
  expect(table.pidSpace()).toMatch(/^pid:/);
  expect(table.read(2 ** 30)).toBeUndefined();
  expect(table.mark(2 ** 30)).toBeUndefined();
});

test('a line of ps says the same, in seconds', () => {
  expect(parseLine(' 42 10 42 0 Ss Sun Nov 15 20:40:01 2026')).toMatchObject({
    pid: 42,
    ppid: 10,
    pgid: 42,
    state: 'S',
  });
  expect(parseLine('PID PPID')).toBeUndefined();
});
