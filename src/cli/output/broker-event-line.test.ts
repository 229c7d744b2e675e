import { expect, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import { brokerLines } from './broker-event-line.js';

test('repeated refused connections are one line per reason and ten seconds, with their number', () => {
  const clock = new FakeClock();
  const lineOf = brokerLines(clock);
  const lines: string[] = [];
  const knock = (reason: 'unknown_key' | 'wrong_path', times: number) => {
    for (let n = 0; n < times; n++) lines.push(...(lineOf({ kind: 'turned_away', reason })?.slice(1) ?? []));
  };
  knock('unknown_key', 1_000);
  knock('wrong_path', 1);
  clock.advance(9_999);
  knock('unknown_key', 1);
  clock.advance(1);
  knock('unknown_key', 1);
  knock('wrong_path', 1);
  expect(lines).toEqual([
    'broker: a connection was refused (unknown_key)',
    'broker: a connection was refused (wrong_path)',
    'broker: a connection was refused (unknown_key), and 1000 more before',
    'broker: a connection was refused (wrong_path)',
  ]);
  expect(lineOf({ kind: 'rekeyed', cut: 2 })).toBeDefined();
  expect(lineOf({ kind: 'rekeyed', cut: 2 })).toBeDefined();
});
