import { expect, test } from 'vitest';
import { isRedrawn, LiveBlock } from './live-block.js';

const drawn = (rows: number, lines: readonly string[], foot?: readonly string[]): string[] => {
  const written: string[] = [];
  const output = { isTTY: true, columns: 80, rows, write: (text: string) => written.push(text) };
  new LiveBlock(output as never).draw(lines, foot);
  return written
    .join('')
    .replaceAll(/\u001b\[\d+m/g, '')
    .split('\n')
    .slice(0, -1);
};

test('a table that is higher than the terminal loses rows, not the lines below it', () => {
  const table = Array.from({ length: 33 }, (_, i) => `row ${i}`);
  expect(drawn(24, table, ['', 'totals', '! a note'])).toEqual([
    ...table.slice(0, 19),
    '… and 14 more',
    '',
    'totals',
    '! a note',
  ]);
  expect(drawn(40, table, ['totals'])).toEqual([...table, 'totals']);
  expect(drawn(24, table)).toEqual([...table.slice(0, 22), '… and 11 more']);
  expect(drawn(4, ['a', 'b'], ['c', 'd', 'e', 'f'])).toEqual(['… and 2 more', 'c', 'd']);
});

test('nothing is redrawn in a pipe, in CI, or on a terminal without cursor control', () => {
  expect(isRedrawn({ isTTY: true }, { TERM: 'xterm' })).toBe(true);
  expect(isRedrawn({ isTTY: true }, { TERM: 'dumb' })).toBe(false);
  expect(isRedrawn({ isTTY: true }, { TERM: 'xterm', CI: 'true' })).toBe(false);
  expect(isRedrawn({ isTTY: false }, { TERM: 'xterm' })).toBe(false);
});
