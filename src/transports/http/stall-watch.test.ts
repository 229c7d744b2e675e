import { expect, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import { StallWatch } from './http-channel.js';

function setup() {
  const clock = new FakeClock();
  const stalls: number[] = [];
  const watch = new StallWatch(clock, (activity) => stalls.push(activity));
  return { clock, stalls, watch };
}

test('W5 requests that wait for 10 s while nothing moves are a stall, reported again every 10 s with the same number', () => {
  const { clock, stalls, watch } = setup();
  watch.waiting();
  clock.advance(9_999);
  expect(stalls).toEqual([]);
  clock.advance(1);
  expect(stalls).toHaveLength(1);
  clock.advance(10_000);
  expect(stalls).toEqual([stalls[0], stalls[0]]);
});

test('W5 a byte written or received restarts the 10 s, and the next stall has another number', () => {
  const { clock, stalls, watch } = setup();
  watch.waiting();
  for (let i = 0; i < 30; i++) {
    clock.advance(5_000);
    watch.active();
  }
  expect(stalls).toEqual([]);
  clock.advance(11_000);
  watch.active();
  clock.advance(11_000);
  expect(new Set(stalls).size).toBe(2);
});

test('W5 the waits of requests that are abandoned before 10 s add up, as long as no byte moves', () => {
  const { clock, stalls, watch } = setup();
  for (let i = 0; i < 3; i++) {
    watch.waiting();
    clock.advance(4_000);
    watch.waitOver();
    clock.advance(60_000);
  }
  expect(stalls).toHaveLength(1);
});

test('no timer runs while no request waits', () => {
  const { clock, watch } = setup();
  watch.active();
  expect(clock.pendingTimers).toBe(0);
  watch.waiting();
  watch.waiting();
  watch.waitOver();
  expect(clock.pendingTimers).toBe(1);
  watch.waitOver();
  expect(clock.pendingTimers).toBe(0);
  watch.waiting();
  watch.stop();
  expect(clock.pendingTimers).toBe(0);
});
