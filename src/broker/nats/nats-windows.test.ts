import { expect, test } from 'vitest';
import { windowsOf } from './nats-windows.js';

const limits = [
  [256, 64],
  [256, 256],
  [5, 2],
  [1, 1],
  [1, 64],
  [1_000, 64],
  [100_000, 1],
] as const;

test.each(limits)(
  'D-44 of %i calls, %i of one: who has all it may leaves room while not all run',
  (calls, callsPerWorker) => {
    const { window, laneWindow, laneHandedOut } = windowsOf({ calls, callsPerWorker });
    expect(laneHandedOut).toBeGreaterThan(Math.min(calls, callsPerWorker));
    expect(laneWindow).toBeGreaterThanOrEqual(laneHandedOut);
    // As many as can have all they may without everything being taken.
    const full = Math.floor((calls - 1) / callsPerWorker);
    const left = calls - full * callsPerWorker;
    expect(window - full * laneHandedOut).toBeGreaterThanOrEqual(left);
    // However few run in all.
    expect(window).toBeGreaterThan(laneHandedOut);
  },
);
