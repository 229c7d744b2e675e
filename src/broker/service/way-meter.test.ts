import { expect, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import { WayMeter } from './way-meter.js';

/** A worker whose clock is this far from the host's, and which tells how long each request was on its way. */
function rig(apartMs = -7_777) {
  const clock = new FakeClock(50_000);
  const meter = new WayMeter(clock);
  const came = (wayMs: number, name = 'c1', mailbox = 'ann') =>
    meter.delayMs(mailbox, { clock: name, atMs: clock.nowMs() + apartMs - wayMs });
  return { clock, meter, came };
}

test.each([-7_777, 0, 1e9])(
  'K9 what is longer than the quickest is seen, however far apart the clocks are (%i)',
  (apartMs) => {
    const { clock, came } = rig(apartMs);
    expect([came(3), came(3), came(150)]).toEqual([0, 0, 147]);
    clock.advance(5_000);
    // A quicker one is the measure from then on.
    expect([came(2), came(3), came(40)]).toEqual([0, 1, 38]);
  },
);

test('the first one of a clock is the measure, and each clock of each mailbox has its own', () => {
  const { came } = rig();
  expect([came(500), came(3), came(500)]).toEqual([0, 0, 497]);
  expect([came(900, 'c2'), came(900, 'c1', 'bob')]).toEqual([0, 0]);
});

test('the quickest counts for one window and the next, as clocks drift apart', () => {
  const { clock, came } = rig();
  came(3);
  clock.advance(10_000);
  expect(came(8)).toBe(5);
  clock.advance(10_000);
  expect(came(8)).toBe(0);
  clock.advance(60_000);
  expect(came(900)).toBe(0);
});

test('what is far too long is no delay: a machine was asleep, or the request waited where its time was counted', () => {
  const { clock, came } = rig();
  came(3);
  expect([came(5_003), came(5_004), came(86_400_000), came(13)]).toEqual([5_000, 0, 0, 10]);
  clock.advance(1);
});

test('D-44 a mailbox that names many clocks pushes out the meter of no other', () => {
  const { came } = rig();
  came(3, 'c1', 'bob');
  for (let n = 0; n < 20_000; n++) came(3, `c${n}`);
  expect(came(150, 'c1', 'bob')).toBe(147);
});
