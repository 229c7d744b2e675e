import { expect, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import { NoiseMeter } from './stdio-channel.js';

test('twenty junk lines in a minute are accepted, twenty-one are noise, and the noise state ends', () => {
  const clock = new FakeClock();
  const meter = new NoiseMeter(clock);
  for (let i = 0; i < 20; i++) meter.count(1);
  expect(meter.noisy).toBe(false);
  clock.advance(59_000);
  meter.count(1);
  expect(meter.noisy).toBe(true);
  clock.advance(1_001);
  expect(meter.noisy).toBe(false);
});

test('lines spread over more than a minute are no noise', () => {
  const clock = new FakeClock();
  const meter = new NoiseMeter(clock);
  for (let i = 0; i < 100; i++) {
    meter.count(1);
    clock.advance(3_100);
  }
  expect(meter.noisy).toBe(false);
});

test('a batch of junk counts each of its messages', () => {
  const meter = new NoiseMeter(new FakeClock());
  meter.count(100);
  expect(meter.noisy).toBe(true);
});
