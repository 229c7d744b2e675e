import { expect, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import { Heartbeat } from './heartbeat.js';

function beating() {
  const clock = new FakeClock();
  const asked: number[] = [];
  const lost: number[] = [];
  const heartbeat = new Heartbeat({
    ...{ clock, pingMs: 20_000, pongMs: 10_000 },
    ping: () => void asked.push(clock.nowMs()),
    lost: () => void lost.push(clock.nowMs()),
  });
  return { clock, asked, lost, heartbeat };
}

test('who answers is asked every 20 s, and never lost', () => {
  const { clock, asked, lost, heartbeat } = beating();
  for (let n = 0; n < 10; n++) {
    clock.advance(10_000);
    heartbeat.heard();
  }
  expect(asked).toEqual([20_000, 40_000, 60_000, 80_000, 100_000]);
  expect(lost).toEqual([]);
});

test('who is silent is lost 10 s after it was asked', () => {
  const { clock, lost } = beating();
  clock.advance(29_999);
  expect(lost).toEqual([]);
  clock.advance(1);
  expect(lost).toEqual([30_000]);
  clock.advance(100_000);
  expect(lost).toEqual([30_000]);
});

test('while nothing is read on purpose, nobody is lost; it begins anew', () => {
  const { clock, asked, lost, heartbeat } = beating();
  clock.advance(25_000);
  heartbeat.stop();
  clock.advance(60_000);
  heartbeat.resume();
  clock.advance(20_000);
  expect(lost).toEqual([]);
  expect(asked).toEqual([20_000, 105_000]);
  expect(clock.pendingTimers).toBe(1);
});
