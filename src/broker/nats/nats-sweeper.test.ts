import { expect, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import { NatsSweeper, type Sweep } from './nats-sweeper.js';

const at = (clock: FakeClock, ms: number): Date => new Date(clock.date().getTime() + ms);
const settle = () => new Promise((resolve) => setImmediate(resolve));

test('nothing goes before its time, and everything after it, each once', async () => {
  const clock = new FakeClock();
  const removed: number[] = [];
  const sweeper = new NatsSweeper(clock, async ({ seq }: Sweep) => removed.push(seq));
  sweeper.add({ stream: 's', seq: 3 }, at(clock, 30_000));
  sweeper.add({ stream: 's', seq: 1 }, at(clock, 10_000));
  sweeper.add({ stream: 's', seq: 2 }, at(clock, 10_500));
  await clock.advanceAsync(9_999);
  await settle();
  expect(removed).toEqual([]);
  await clock.advanceAsync(2_000);
  await settle();
  expect(removed).toEqual([1, 2]);
  await clock.advanceAsync(60_000);
  await settle();
  expect(removed).toEqual([1, 2, 3]);
  expect(sweeper.size).toBe(0);
  expect(clock.pendingTimers).toBe(0);
});

test('what is past already goes with the next second; one that fails holds up no other', async () => {
  const clock = new FakeClock();
  const removed: number[] = [];
  const sweeper = new NatsSweeper(clock, async ({ seq }: Sweep) => {
    if (seq === 1) throw new Error('gone');
    removed.push(seq);
  });
  for (const seq of [1, 2, 3]) sweeper.add({ stream: 's', seq }, at(clock, -5_000));
  await clock.advanceAsync(1_000);
  await settle();
  expect(removed).toEqual([2, 3]);
});

test('few are under way at a time, and what comes meanwhile has its turn', async () => {
  const clock = new FakeClock();
  const ends: (() => void)[] = [];
  let removed = 0;
  const sweeper = new NatsSweeper(clock, () =>
    new Promise<void>((resolve) => ends.push(resolve)).then(() => removed++),
  );
  for (let seq = 0; seq < 40; seq++) sweeper.add({ stream: 's', seq }, at(clock, 0));
  await clock.advanceAsync(1_000);
  await settle();
  expect(ends.length).toBe(16);
  sweeper.add({ stream: 's', seq: 99 }, at(clock, 0));
  await clock.advanceAsync(2_000);
  while (ends.length > 0) {
    for (const end of ends.splice(0)) end();
    await settle();
  }
  await clock.advanceAsync(2_000);
  await settle();
  for (const end of ends.splice(0)) end();
  await settle();
  expect(removed).toBe(41);
});

test('stopped, it removes nothing and keeps no timer', () => {
  const clock = new FakeClock();
  const sweeper = new NatsSweeper(clock, () => Promise.reject(new Error('not to be asked')));
  sweeper.add({ stream: 's', seq: 1 }, at(clock, 5_000));
  sweeper.stop();
  expect(clock.pendingTimers).toBe(0);
  expect(sweeper.size).toBe(0);
});
