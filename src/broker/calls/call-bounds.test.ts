import { describe, expect, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import { brokerLimits } from '../protocol/limits.js';
import { CallBounds, type RowClass } from './call-bounds.js';

const MiB = 1024 * 1024;

function make() {
  const clock = new FakeClock();
  const asked: (readonly [RowClass, string | undefined])[] = [];
  const bounds = new CallBounds(clock, (kind, worker) => {
    asked.push([kind, worker]);
    return 123_456;
  });
  const hold = (worker: string, rows: number, bytes: number, isCallersKey = false) =>
    bounds.change({ worker, isCallersKey, open: 0, finished: rows, bytes });
  const refusal = (worker: string, isCallersKey = false) => bounds.refusal(worker, isCallersKey)?.details;
  return { clock, asked, bounds, hold, refusal };
}

describe('B9 a call is refused at the bound, and not one row or byte earlier:', () => {
  test('256 calls of one worker', () => {
    const { bounds, hold, refusal } = make();
    hold('w1', 200, 0);
    bounds.change({ worker: 'w1', isCallersKey: false, open: 55, finished: 0, bytes: 0 });
    expect(refusal('w1')).toBeUndefined();
    hold('w1', 1, 0);
    expect(refusal('w1')).toMatchObject({ reason: 'worker_calls', execution: 'not_executed', retryAfterMs: 1_000 });
    expect([refusal('w2'), refusal('w1', true)]).toEqual([undefined, undefined]);
    hold('w1', -1, 0);
    expect(refusal('w1')).toBeUndefined();
  });

  test('64 MiB of one worker; a reply fits to the last byte', () => {
    const { bounds, hold, refusal } = make();
    hold('w1', 1, 64 * MiB - 1);
    expect(refusal('w1')).toBeUndefined();
    const fits = (worker: string, bytes: number) => bounds.hasRoom(worker, bytes, false);
    expect([fits('w1', 1), fits('w1', 2), fits('w2', 2)]).toEqual([true, false, true]);
    hold('w1', 1, 1);
    expect(refusal('w1')).toMatchObject({ reason: 'worker_calls' });
    expect(refusal('w2')).toBeUndefined();
  });

  test('replies that wait for room count as well, until they are woken or their deadline passes', async () => {
    const { clock, bounds, hold, refusal } = make();
    hold('w1', 17, 64 * MiB - 2);
    const first = bounds.room('w1', 1, clock.nowMs() + 100);
    expect(refusal('w1')).toBeUndefined();
    const second = bounds.room('w1', 1, clock.nowMs() + 200);
    expect(refusal('w1')).toMatchObject({ reason: 'worker_calls', retryAfterMs: 1_000 });
    expect([refusal('w2'), bounds.hasRoom('w1', 2, false)]).toEqual([undefined, true]);
    clock.advance(100);
    await first;
    expect([refusal('w1'), bounds.isWaiting]).toEqual([undefined, true]);
    bounds.wake();
    await second;
    expect(bounds.isWaiting).toBe(false);
    hold('w1', 1, 1);
    expect(refusal('w1')).toBeUndefined();
  });

  test('192 MiB of all workers', () => {
    const { clock, bounds, hold, refusal } = make();
    for (const worker of ['w1', 'w2', 'w3']) hold(worker, 17, 64 * MiB - 1);
    expect(refusal('w4')).toBeUndefined();
    expect([bounds.hasRoom('w4', 3, false), bounds.hasRoom('w4', 4, false)]).toEqual([true, false]);
    void bounds.room('w4', 3, Number.POSITIVE_INFINITY);
    expect(refusal('w5')).toMatchObject({ reason: 'all_replies', retryAfterMs: 1_000 });
    clock.advance(5_000);
    expect(refusal('w5')).toMatchObject({ reason: 'all_replies', retryAfterMs: 123_456 });
    expect(refusal('w5', true)).toMatchObject({ reason: 'all_keys' });
  });

  test("192 MiB of replies to workers and to callers' keys together, of which callers' keys may use half", () => {
    const { bounds, hold, refusal } = make();
    for (const worker of ['w1', 'w2', 'w3', 'w4']) hold(worker, 1, 24 * MiB, true);
    expect([refusal('w5', true)?.reason, refusal('w5')?.reason]).toEqual(['all_keys', undefined]);
    expect([bounds.hasRoom('w5', 1, true), bounds.hasRoom('w5', 1, false)]).toEqual([false, true]);
    hold('w5', 17, 64 * MiB - 1);
    hold('w6', 17, 32 * MiB);
    expect(refusal('w7')).toBeUndefined();
    hold('w6', 1, 1);
    expect(refusal('w7')).toMatchObject({ reason: 'all_replies' });
  });

  test("25,000 callers' keys of one worker, 100,000 of all workers, and the bytes of their replies", () => {
    const { hold, refusal } = make();
    const { callersKeysPerWorker, callersKeyBytesPerWorker } = brokerLimits;
    hold('w1', callersKeysPerWorker - 1, 0, true);
    hold('w2', 1, callersKeyBytesPerWorker - 1, true);
    expect([refusal('w1', true), refusal('w2', true)]).toEqual([undefined, undefined]);
    hold('w1', 1, 0, true);
    hold('w2', 0, 1, true);
    const full = { reason: 'worker_keys', retryAfterMs: 123_456 };
    expect([refusal('w1', true), refusal('w2', true)]).toMatchObject([full, full]);
    expect(refusal('w1')).toBeUndefined();
    for (const worker of ['w3', 'w4', 'w5']) hold(worker, 24_999, 0, true);
    expect(refusal('w6', true)).toBeUndefined();
    hold('w3', 2, 0, true);
    expect(refusal('w6', true)).toMatchObject({ reason: 'all_keys', retryAfterMs: 123_456 });
  });
});

test('AC-BR7 replies that are not acknowledged: the refusal names the time at which they expire', () => {
  const { clock, asked, bounds, hold, refusal } = make();
  hold('w1', 256, 0);
  clock.advance(4_999);
  expect(refusal('w1')?.retryAfterMs).toBe(1_000);
  clock.advance(1);
  expect(refusal('w1')?.retryAfterMs).toBe(123_456);
  expect(asked).toEqual([['calls', 'w1']]);
  // All calls still run, so one of them may end at any moment.
  bounds.change({ worker: 'w2', isCallersKey: false, open: 256, finished: 0, bytes: 0 });
  clock.advance(60_000);
  expect(refusal('w2')?.retryAfterMs).toBe(1_000);
});

test('D-43 replies to the keys of one caller that find no room affect no other caller', () => {
  const { bounds, hold } = make();
  hold('_app', 1, brokerLimits.callersKeyBytesPerWorker - 1, true);
  expect([bounds.hasRoom('_app', 1, true), bounds.hasRoom('_app', 2, true), bounds.hasRoom('_x', 2, true)]).toEqual([
    ...[true, false, true],
  ]);
  hold('_app', 0, 1, true);
  expect(bounds.refusal('_app', true)?.message).toMatch(/^principal 'app' has 1 keys that callers chose/);
});

test('D-43 replies of one worker that find no room affect no other worker', () => {
  const { hold, refusal } = make();
  hold('ann', 1, brokerLimits.replyBytesPerWorker);
  expect(refusal('ann')).toBeDefined();
  expect(refusal('bob')).toBeUndefined();
});
