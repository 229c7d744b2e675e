import { describe, expect, test } from 'vitest';
import {
  type GroupStatus,
  type Ladder,
  type LadderEffect,
  type LadderPace,
  shortenWaits,
  step,
} from './process-group.js';

const pace: LadderPace = { eofMs: 2_000, termMs: 3_000, settleMs: 50, verifyMs: 1_000 };
const leader: GroupStatus = { leader: true, followers: 0 };
const followers: GroupStatus = { leader: false, followers: 2 };
const empty: GroupStatus = { leader: false, followers: 0 };

/** Plays a list of [time, event]. Returns each effect with its time, and the final state. */
function walk(...statuses: Array<[number, GroupStatus]>) {
  let ladder: Ladder = { kind: 'standing' };
  const effects: Array<[number, LadderEffect]> = [];
  for (const [nowMs, status] of statuses) {
    const [next, todo] = step(ladder, status, nowMs, pace);
    ladder = next;
    for (const effect of todo) effects.push([nowMs, effect]);
  }
  return { ladder, effects };
}

describe('a stop', () => {
  test('an obedient server only sees the end of its input', () => {
    expect(walk([0, leader], [20, empty])).toEqual({
      ladder: { kind: 'done', rung: 'eof', left: 0 },
      effects: [[0, 'close_stdin']],
    });
  });

  test('a server that ignores everything gets each signal at its time', () => {
    const { ladder, effects } = walk([0, leader], [1_999, leader], [2_000, leader], [4_999, leader], [5_000, leader]);
    expect(effects).toEqual([
      [0, 'close_stdin'],
      [2_000, 'term'],
      [5_000, 'kill'],
    ]);
    expect(step(ladder, empty, 5_010, pace)[0]).toEqual({ kind: 'done', rung: 'kill', left: 0 });
  });

  test('when only the leader obeys, the other processes do not get the full wait', () => {
    const { effects } = walk([0, leader], [10, followers], [59, followers], [60, followers], [3_060, followers]);
    expect(effects).toEqual([
      [0, 'close_stdin'],
      [60, 'term'],
      [3_060, 'kill'],
    ]);
  });

  test('processes that end together with the leader are not signalled', () => {
    const { ladder, effects } = walk([0, leader], [10, followers], [30, empty]);
    expect(effects).toEqual([[0, 'close_stdin']]);
    expect(ladder).toEqual({ kind: 'done', rung: 'eof', left: 0 });
  });

  test('when a server has ended by itself, its other processes are stopped', () => {
    const { effects } = walk([0, followers], [50, followers], [3_050, followers]);
    expect(effects).toEqual([
      [50, 'term'],
      [3_050, 'kill'],
    ]);
  });

  test('a server that ended by itself without other processes needs no signal', () => {
    expect(walk([0, empty])).toEqual({ ladder: { kind: 'done', rung: 'none', left: 0 }, effects: [] });
  });

  test('processes that outlive SIGKILL are reported, not waited for', () => {
    const { ladder } = walk([0, leader], [2_000, leader], [5_000, leader], [5_999, followers], [6_000, followers]);
    expect(ladder).toEqual({ kind: 'done', rung: 'kill', left: 2 });
  });

  test('once done, nothing more happens', () => {
    const done: Ladder = { kind: 'done', rung: 'eof', left: 0 };
    expect(step(done, leader, 9_999, pace)).toEqual([done, []]);
  });
});

test('another pace never makes a running stop slower', () => {
  const [walking] = step({ kind: 'standing' }, leader, 0, pace);
  expect(shortenWaits(walking, 100, { ...pace, eofMs: 0 })).toMatchObject({ untilMs: 100 });
  expect(shortenWaits(walking, 100, { ...pace, eofMs: 60_000 })).toMatchObject({ untilMs: 2_000 });
});
