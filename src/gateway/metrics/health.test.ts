import { expect, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import { healthz, Readiness } from './health.js';

const unready = (reason: string) => ({
  status: 503,
  contentType: 'application/json',
  body: JSON.stringify({ ready: false, reason }),
});
const ready = { status: 200, contentType: 'application/json', body: '{"ready":true}' };

test('a process that answers is alive', () => {
  expect(healthz()).toEqual({ status: 200, contentType: 'application/json', body: '{"ok":true}' });
});

test('if the tools of all servers are known, the process is ready once the host is open', () => {
  const readiness = new Readiness(new FakeClock());
  expect(readiness.readyz()).toEqual(unready('starting'));
  readiness.opened(undefined);
  expect(readiness.readyz()).toEqual(ready);
});

test.each(['resolved', 'rejected'])('the process is ready when the startup listing has %s', async (how) => {
  const clock = new FakeClock();
  const readiness = new Readiness(clock);
  let end: () => void = () => {};
  readiness.opened(
    new Promise((resolve, reject) => {
      end = how === 'resolved' ? () => resolve(undefined) : () => reject(new Error('no'));
    }),
  );
  expect(readiness.readyz()).toEqual(unready('learning'));
  end();
  await clock.advanceAsync(0);
  expect(readiness.readyz()).toEqual(ready);
  expect(clock.pendingTimers).toBe(0);
});

test('the process waits at most five seconds for a server', () => {
  const clock = new FakeClock();
  const readiness = new Readiness(clock);
  readiness.opened(new Promise(() => {}));
  clock.advance(4_999);
  expect(readiness.readyz()).toEqual(unready('learning'));
  clock.advance(1);
  expect(readiness.readyz()).toEqual(ready);
});

test('once the process stops, it never becomes ready again', async () => {
  const clock = new FakeClock();
  const readiness = new Readiness(clock);
  readiness.opened(Promise.resolve());
  readiness.stopping();
  readiness.opened(undefined);
  await clock.advanceAsync(10_000);
  expect(readiness.readyz()).toEqual(unready('stopping'));
});
