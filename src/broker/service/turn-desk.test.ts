import { describe, expect, test } from 'vitest';
import { TurnDesk } from './turn-desk.js';

const limits = { running: 4, runningOfOne: 2, waitingOfOne: 3, bytes: 100, bytesOfOne: 100 };

describe('turns', () => {
  test('D-44 a worker that floods is overtaken by the next that comes', () => {
    const desk = new TurnDesk({ ...limits, running: 1, waitingOfOne: 10_000, bytes: 1e9, bytesOfOne: 1e9 });
    const started: string[] = [];
    for (let i = 0; i < 10_000; i++) desk.enter('flood', 1, () => started.push(`flood ${i}`));
    desk.enter('calm', 1, () => started.push('calm'));
    desk.leave('flood', 1);
    desk.leave('flood', 1);
    expect(started).toEqual(['flood 0', 'flood 1', 'calm']);
  });

  test('no more than the limits run, in all and of one', () => {
    const desk = new TurnDesk(limits);
    const started: string[] = [];
    for (const name of ['a', 'a', 'a', 'b', 'b', 'b']) desk.enter(name, 1, () => started.push(name));
    expect(started).toEqual(['a', 'a', 'b', 'b']);
    expect([desk.running, desk.waiting]).toEqual([4, 2]);
    desk.leave('b', 1);
    expect(started).toEqual(['a', 'a', 'b', 'b', 'b']);
  });

  test('past what may wait, by count or bytes, nothing is taken', () => {
    const desk = new TurnDesk({ ...limits, running: 1 });
    const enter = (bytes: number) => desk.enter('a', bytes, () => {});
    expect([enter(1), enter(1), enter(1), enter(1), enter(1)]).toEqual([true, true, true, true, false]);
    expect(desk.enter('b', 96, () => {})).toBe(true);
    expect(desk.enter('b', 1, () => {})).toBe(false);
    desk.leave('a', 1);
    expect(desk.enter('b', 1, () => {})).toBe(true);
  });

  test('one who sends large ones has a part of the bytes, and the others the rest', () => {
    const desk = new TurnDesk({ ...limits, bytesOfOne: 25 });
    const enter = (name: string, bytes: number) => desk.enter(name, bytes, () => {});
    expect([enter('a', 20), enter('a', 6), enter('a', 5)]).toEqual([true, false, true]);
    expect([enter('b', 40), enter('b', 1)]).toEqual([true, false]);
    desk.leave('a', 20);
    expect([enter('a', 20), enter('a', 1)]).toEqual([true, false]);
  });

  test('one that is larger than everything is taken when it is alone', () => {
    expect(new TurnDesk(limits).enter('a', 1_000, () => {})).toBe(true);
  });
});
