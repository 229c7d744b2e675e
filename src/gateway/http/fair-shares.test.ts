import { describe, expect, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import { contendedMs, FairShares } from './open-exchanges.js';

function setUp(max = 16) {
  const clock = new FakeClock();
  const shares = new FairShares(max, clock);
  /** How many of the requested places a key gets. */
  const take = (key: string, asked: number): number => {
    let taken = 0;
    for (; taken < asked && shares.admits(key); taken++) shares.take(key);
    return taken;
  };
  const giveBack = (key: string, count: number) => {
    for (let i = 0; i < count; i++) shares.release(key);
  };
  return { clock, shares, take, giveBack };
}

describe('E12 one key', () => {
  test('that is alone gets every place, and no more', () => {
    const { shares, take } = setUp();
    expect([take('a', 20), shares.size]).toEqual([16, 16]);
  });

  test('leaves a quarter free for others while they hold places', () => {
    const { take } = setUp();
    expect([take('b', 1), take('a', 20), take('b', 20), take('a', 1), take('c', 1)]).toEqual([...[1, 11, 3, 0, 1]]);
  });

  test('that took all places gets no more above its quarter while a refused key waits; the refused key gets the free places', () => {
    const { shares, take, giveBack } = setUp();
    take('a', 16);
    expect(take('b', 1)).toBe(0);
    giveBack('a', 2);
    expect([take('a', 1), take('b', 5), take('a', 1), shares.size]).toEqual([0, 2, 0, 16]);
    giveBack('a', 14);
    // b was refused its third place. When b has its quarter, a may again take more than a quarter.
    expect([take('a', 1), take('b', 2), take('a', 20)]).toEqual([1, 2, 7]);
  });

  test('is not limited for ever by a key that has left', () => {
    const { clock, take, giveBack } = setUp();
    take('a', 16);
    expect(take('b', 1)).toBe(0);
    giveBack('a', 8);
    clock.advance(contendedMs - 1);
    expect(take('a', 1)).toBe(0);
    clock.advance(1);
    expect(take('a', 20)).toBe(8);
  });

  test('that is refused above its quarter limits no other key', () => {
    const { take } = setUp();
    take('b', 1);
    expect([take('a', 20), take('a', 1), take('b', 3)]).toEqual([11, 0, 3]);
  });
});

test('E12 if each of four keys takes every place that it can get, each has a quarter in the end, whatever the first one held', () => {
  const { shares, take, giveBack } = setUp(100);
  const held: Record<string, number> = { a: take('a', 100), b: 0, c: 0, d: 0 };
  for (let round = 0; round < 200; round++) {
    for (const key of ['b', 'c', 'd', 'a']) held[key] = (held[key] as number) + take(key, 3);
    // The key with the most places releases one.
    const [most] = Object.entries(held).sort(([, one], [, other]) => other - one)[0] as [string, number];
    giveBack(most, 1);
    held[most] = (held[most] as number) - 1;
    expect(shares.size).toBeLessThanOrEqual(100);
  }
  expect(Object.values(held).every((count) => count >= 24 && count <= 25)).toBe(true);
});

test('E12 a released slot leaves no entry', () => {
  const { shares, take, giveBack } = setUp(4);
  for (let i = 0; i < 100; i++) {
    expect(take(`key ${i}`, 1)).toBe(1);
    giveBack(`key ${i}`, 1);
  }
  expect([shares.size, take('a', 9)]).toEqual([0, 4]);
});

test.each([1, 2, 3])('E12 a table of %i places gives all of them to one key', (max) => {
  expect(setUp(max).take('a', 9)).toBe(max);
});
