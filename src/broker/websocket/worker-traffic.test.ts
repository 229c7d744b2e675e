import { expect, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import { WorkerTraffic } from './worker-traffic.js';

const MiB = 1024 * 1024;

function rig() {
  const clock = new FakeClock();
  const outbound = { bytes: 0 };
  let idle = 0;
  const worker = () => new WorkerTraffic({ clock, bytesPerSecond: 1_000, outbound, idle: () => void idle++ });
  return { clock, outbound, worker, idleCount: () => idle };
}

test('B8 workers that do not read leave room for the replies of another one', () => {
  const { worker, outbound } = rig();
  const fill = () => {
    const slow = worker();
    while (slow.take(64 * 1024, 'reply'));
  };
  for (let n = 0; n < 8; n++) fill();
  expect(worker().take(3.9 * MiB, 'reply')).toBe(true);
  for (let n = 0; n < 100; n++) fill();
  expect(worker().take(128 * 1024, 'reply')).toBe(true);
  expect(outbound.bytes).toBeLessThan(128 * MiB + 110 * 128 * 1024);
});

test('one worker may have 16 MiB that it did not read, of which progress uses half', () => {
  const { worker, outbound } = rig();
  const slow = worker();
  expect([slow.take(8 * MiB, 'progress'), slow.take(1, 'progress')]).toEqual([true, false]);
  expect([slow.take(8 * MiB, 'reply'), slow.take(1, 'reply'), slow.take(1, 'must')]).toEqual([true, false, true]);
  slow.release(16 * MiB + 1);
  expect(outbound.bytes).toBe(0);
});

test('a worker that leaves is forgotten, but not before the pause for its bytes is over', () => {
  const { clock, worker, idleCount } = rig();
  const traffic = worker();
  const connection = { pace: () => {} };
  traffic.add(connection);
  traffic.rate.use(1_250);
  traffic.remove(connection, 0);
  expect(idleCount()).toBe(0);
  clock.advance(1_000);
  expect(idleCount()).toBe(1);
  traffic.add(connection);
  traffic.remove(connection, 0);
  expect(idleCount()).toBe(2);
});
