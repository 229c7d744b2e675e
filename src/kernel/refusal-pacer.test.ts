import { expect, test } from 'vitest';
import { FakeClock } from './fake-clock.js';
import { RefusalPacer } from './refusal-pacer.js';

function setUp() {
  const clock = new FakeClock();
  const pacer = new RefusalPacer(clock);
  const refused: number[] = [];
  const refuse = (count: number, deadlineAtMs?: number) => {
    for (let i = 0; i < count; i++) pacer.run(() => refused.push(i), deadlineAtMs);
  };
  return { clock, pacer, refused, refuse };
}

test('of many refusals 32 run at once and 32 more every 5 ms, in order', () => {
  const { clock, refused, refuse } = setUp();
  refuse(80);
  expect(refused).toHaveLength(32);
  clock.advance(5);
  expect(refused).toHaveLength(64);
  clock.advance(5);
  expect(refused).toEqual(Array.from({ length: 80 }, (_, i) => i));
  clock.advance(5);
  expect(clock.pendingTimers).toBe(0);
});

test('a refusal is not delayed beyond the deadline of its request', () => {
  const { refused, refuse } = setUp();
  refuse(40, 500);
  expect(refused).toHaveLength(40);
});

test('past 3,200 delayed refusals the next ones run at once, so none waits longer than half a second', () => {
  const { clock, refused, refuse } = setUp();
  refuse(32 + 3_200 + 10);
  expect(refused).toHaveLength(42);
  clock.advance(500);
  expect(refused).toHaveLength(3_242);
});

test('flush runs all delayed refusals', () => {
  const { pacer, refused, refuse } = setUp();
  refuse(100);
  pacer.flush();
  expect(refused).toHaveLength(100);
});
