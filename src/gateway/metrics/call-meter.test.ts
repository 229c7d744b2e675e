import { describe, expect, test } from 'vitest';
import { ERRORS } from '../../kernel/errors.js';
import { bucketsMs, CallMeter, outcomes } from './call-meter.js';

const countOf = (meter: CallMeter, server: string, outcome: (typeof outcomes)[number]) =>
  meter.counts([server]).get(server)?.outcomes[outcomes.indexOf(outcome)];

test('outcomes are `ok` and the codes of errors, and nothing else', () => {
  expect(outcomes).toEqual(['ok', ...Object.keys(ERRORS)]);
});

test('calls are counted by server and outcome, restarts by server', () => {
  const meter = new CallMeter();
  meter.called('a', 'ok', 3);
  meter.called('a', 'ok', 4);
  meter.called('a', 'timeout', 60_000);
  meter.called('b', 'ok', 1);
  meter.restarted('b');
  expect([countOf(meter, 'a', 'ok'), countOf(meter, 'a', 'timeout')]).toEqual([2, 1]);
  const figures = new CallMeter();
  figures.restarted('b');
  expect(figures.counts(['b']).get('b')?.restarts).toBe(1);
});

test('a duration is in the first bucket that it does not exceed', () => {
  const meter = new CallMeter();
  for (const ms of [0, 1, 1.01, 2.5, 600_000, 600_001]) meter.called('a', 'ok', ms);
  const figures = meter.counts(['a']).get('a');
  const last = bucketsMs.length;
  expect([...(figures?.buckets ?? [])].flatMap((count, i) => (count ? [[i, count]] : []))).toEqual([
    [0, 2],
    [1, 2],
    [last - 1, 1],
    [last, 1],
  ]);
  expect(figures?.calls).toBe(6);
  expect(figures?.sumMs).toBeCloseTo(1_200_005.51);
});

describe('names', () => {
  test('of unknown or removed servers are not stored, but their calls are counted', () => {
    const meter = new CallMeter();
    for (let i = 0; i < 10_000; i++) meter.called(`made-up-${i}`, 'denied', 1);
    meter.called('real', 'ok', 1);
    // The call of `real` came when the table was full, so it is counted without the name.
    const first = meter.counts(['real']);
    expect([...first.keys()]).toEqual(['real', '']);
    expect((first.get('')?.calls ?? 0) + (first.get('real')?.calls ?? 0)).toBe(10_001);
    meter.called('real', 'ok', 1);
    expect(meter.counts(['real']).get('real')?.calls).toBe(1);
    expect(meter.counts([]).get('')?.calls).toBe(10_002);
  });
});
