import { expect, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import { watchIdle } from './idle-exit.js';

/** A host, whether it is used, and the time at which it ended. */
function watched(idleMs = 30_000) {
  const clock = new FakeClock();
  const usage = { open: 1, total: 0 };
  const settings = { idleMs };
  let endedAtMs: number | undefined;
  const cancel = watchIdle(
    clock,
    () => settings.idleMs,
    () => ({ ...usage }),
    () => (endedAtMs = clock.nowMs()),
  );
  const startMs = clock.nowMs();
  return {
    clock,
    usage,
    settings,
    cancel,
    endedAfterMs: () => (endedAtMs === undefined ? undefined : endedAtMs - startMs),
  };
}

test('R4 a host ends 30 s after its last client, and not while it is used', () => {
  const { clock, usage, endedAfterMs } = watched();
  clock.advance(100_000);
  expect(endedAfterMs()).toBeUndefined();
  usage.open = 0;
  clock.advance(30_000);
  expect(endedAfterMs()).toBeUndefined();
  clock.advance(1_000);
  expect(endedAfterMs()).toBe(131_000);
});

test('R4 a client that comes and goes between two checks restarts the time', () => {
  const { clock, usage, endedAfterMs } = watched();
  usage.open = 0;
  clock.advance(25_500);
  usage.total++;
  clock.advance(29_000);
  expect(endedAfterMs()).toBeUndefined();
  clock.advance(3_000);
  expect(endedAfterMs()).toBe(56_000);
});

test('R4 with idleExit 0 a host never ends, and an edit of idleExit takes effect', () => {
  const { clock, usage, settings, endedAfterMs } = watched(0);
  usage.open = 0;
  clock.advance(1_000_000);
  expect(endedAfterMs()).toBeUndefined();
  settings.idleMs = 2_000;
  clock.advance(5_000);
  expect(endedAfterMs()).toBeGreaterThan(1_000_000);
});

test('after its end nothing is watched', () => {
  const { clock, cancel } = watched();
  cancel();
  expect(clock.pendingTimers).toBe(0);
});
