import { existsSync } from 'node:fs';
import { expect, test } from 'vitest';
import { parsePsLine, parseStat, procTable, psTable } from './process-table.js';

const after = 'S 10 42 42 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 98765 1000 1 18446744073709551615';

test.each([
  ['a plain name', '42 (server)'],
  ['blanks and parentheses in the name', '42 (a) S 1 1 1 (b) )'],
  ['a newline in the name', '42 (a\n) b)'],
  ['an empty name', '42 ()'],
])('stat is split at its last parenthesis: %s', (_name, before) => {
  expect(parseStat(`${before} ${after}\n`)).toEqual({
    pid: 42,
    ppid: 10,
    pgid: 42,
    startTicks: 98765,
    state: 'S',
  });
});

test.each(['', 'x', '42 (cut', '42 (cut) S 1', '-1 (a) S 1'])(
  'a text that is not a stat line is ignored: %j',
  (text) => {
    expect(parseStat(text)).toBeUndefined();
  },
);

test.runIf(existsSync('/proc/self/stat'))('the table knows this very process', () => {
  const table = procTable();
  expect(table.read(process.pid)).toMatchObject({ pid: process.pid, ppid: process.ppid });
  expect(table.living()).toContainEqual(expect.objectContaining({ pid: process.pid }));
  expect(table.bootId()).toMatch(/^[0-9a-f-]{36}$/);
  expect(table.pidSpace()).toMatch(/^pid:/);
  expect(table.read(2 ** 30)).toBe('gone');
  expect(table.mark(2 ** 30)).toBeUndefined();
});

test('a folder that is no process table gives an unknown result, not an empty one', () => {
  const table = procTable('/nowhere');
  expect(table.living()).toBe('unknown');
});

test('a line of ps gives the same values, with start times in seconds of wall clock time', () => {
  expect(parsePsLine(' 42 10 42 Ss Sun Nov 15 20:40:01 2026')).toEqual({
    pid: 42,
    ppid: 10,
    pgid: 42,
    startTicks: Date.UTC(2026, 10, 15, 20, 40, 1) / 1_000,
    state: 'S',
  });
  expect(parsePsLine('PID PPID')).toBeUndefined();
});

const line = ' 42 10 42 Ss Sun Nov 15 20:40:01 2026';

test('E19 ps: a process that is not listed has ended, and a failed ps gives an unknown result', () => {
  const listing = psTable(() => [line]);
  expect(listing.read(42)).toMatchObject({ pid: 42 });
  expect(listing.read(43)).toBe('gone');
  expect(listing.living()).toHaveLength(1);
  expect(psTable(() => []).read(42)).toBe('gone');
  expect(psTable(() => []).living()).toBe('unknown');
  const failing = psTable(() => undefined);
  expect([failing.read(42), failing.living(), failing.bootId()]).toEqual(['unknown', 'unknown', '']);
});

test('E19 ps: no program is run for the start time of a new child', () => {
  const wallMs = Date.UTC(2026, 10, 15, 20, 40, 1) + 900;
  const run = () => {
    throw new Error('a program was run');
  };
  const table = psTable(run, () => wallMs);
  expect(table.startOf(42)).toBe(Math.floor(wallMs / 1_000));
  const own = line.replace('42', String(process.pid));
  expect(psTable(() => [own]).startOf(process.pid)).toBe(Date.UTC(2026, 10, 15, 20, 40, 1) / 1_000);
  expect(psTable(() => undefined).startOf(process.pid)).toBe(0);
});
