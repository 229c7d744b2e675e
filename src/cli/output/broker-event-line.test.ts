import { expect, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import { brokerLines } from './broker-event-line.js';

test('refused connections are logged once for each reason in ten seconds, with their number', () => {
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
    'broker: a connection was refused (its key is unknown, expired or revoked)',
    'broker: a connection was refused (its path is not that of the broker)',
    'broker: a connection was refused (its key is unknown, expired or revoked), and 1000 more before',
    'broker: a connection was refused (its path is not that of the broker)',
  ]);
  expect(lineOf({ kind: 'rekeyed', closed: 2 })).toBeDefined();
  expect(lineOf({ kind: 'rekeyed', closed: 2 })).toBeDefined();
});

test('a worker that reconnects is logged as connected again', () => {
  const lineOf = brokerLines(new FakeClock());
  const event = { kind: 'connected', worker: 'laptop', session: 's' } as const;
  expect(lineOf({ ...event, isAgain: false })).toEqual(['info', "broker: worker 'laptop' is connected"]);
  expect(lineOf({ ...event, isAgain: true })).toEqual(['info', "broker: worker 'laptop' is connected again"]);
});
