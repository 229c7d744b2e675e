import { expect, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import { Heartbeat } from './frame-socket.js';

function rig() {
  const clock = new FakeClock();
  const seen: string[] = [];
  const note = (what: string) => void seen.push(`${what} ${clock.nowMs()}`);
  return { clock, seen, heartbeat: new Heartbeat({ clock, ping: () => note('ping'), lost: () => note('lost') }) };
}

test('D-51 a silent peer gets a ping after 20 s and is lost 10 s later', () => {
  const { clock, seen } = rig();
  clock.advance(60_000);
  expect(seen).toEqual(['ping 20000', 'lost 30000']);
});

test('anything that arrives keeps the peer', () => {
  const { clock, seen, heartbeat } = rig();
  for (let second = 0; second < 100; second += 5) {
    clock.advance(5_000);
    heartbeat.heard();
  }
  expect(seen).toEqual(['ping 20000', 'ping 40000', 'ping 60000', 'ping 80000', 'ping 100000']);
});

test('silence during a pause means nothing', () => {
  const { clock, seen, heartbeat } = rig();
  clock.advance(25_000);
  heartbeat.stop();
  clock.advance(100_000);
  heartbeat.start();
  clock.advance(19_999);
  expect(seen).toEqual(['ping 20000']);
});
