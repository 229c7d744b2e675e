/** `hostler up` is told to stop while calls of workers run. */
import { readFileSync } from 'node:fs';
import { afterAll, expect, test } from 'vitest';
import { eventually } from '../../eventually.js';
import { BrokerPlace, newKey } from './broker-place.js';

const place = new BrokerPlace();
const key = newKey();
afterAll(() => place.remove());

const seen = (what: string) => {
  try {
    return readFileSync(place.sleepyLedger, 'utf8')
      .split('\n')
      .filter((line) => line.startsWith(`${what} `))
      .map((line) => line.split(' ')[1] as string);
  } catch {
    return [];
  }
};

test('a stop lets running calls of workers finish and begins no other; the next start runs those', {
  timeout: 90_000,
}, async () => {
  const { up: first, tools } = await place.upSleepy(key, { callsPerWorker: 4 });
  const call = (nonce: string, sleepMs: number) =>
    tools.execute('sleepy', 'work', { nonce, sleepMs }, { deadlineMs: 60_000 }).then(
      ({ bytes }) => JSON.parse(bytes.toString()).content[0].text as string,
      ({ code }) => code as string,
    );
  const begun = ['a', 'b', 'c', 'd'].map((nonce) => call(nonce, 1_500));
  await eventually('four run', () => seen('start').length === 4);
  // These wait, because as many calls of the worker run as may run at once.
  const waiting = ['e', 'f', 'g', 'h'].map((nonce) => call(nonce, 1_500));
  await eventually('all of them sent', () => tools.status().inFlight === 8);
  first.child.kill('SIGTERM');
  // Their replies come before the host is gone.
  expect(await Promise.all(begun)).toEqual(['a', 'b', 'c', 'd']);
  expect((await first.closed).code).toBe(0);
  expect(first.stderr).not.toMatch(/ error /);
  expect([seen('start').sort(), seen('cancelled')]).toEqual([['a', 'b', 'c', 'd'], []]);
  await place.upWithBroker();
  expect(await Promise.all(waiting)).toEqual(['e', 'f', 'g', 'h']);
  expect(seen('start').sort()).toEqual(['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h']);
});

test('a call that is cancelled while no host is up does not run when a host starts', { timeout: 90_000 }, async () => {
  const other = new BrokerPlace();
  try {
    const { up, tools } = await other.upSleepy(newKey());
    up.child.kill('SIGTERM');
    await up.closed;
    const stopped = new AbortController();
    const options = { deadlineMs: 60_000, signal: stopped.signal };
    const cancelled = tools.execute('sleepy', 'work', { nonce: 'cancelled' }, options).then(
      () => 'done',
      ({ code }) => code as string,
    );
    await eventually('it waits', () => tools.status().inFlight === 1);
    stopped.abort();
    expect(await cancelled).toBe('cancelled');
    await other.up().ready();
    await tools.execute('sleepy', 'work', { nonce: 'later' }, { deadlineMs: 60_000 });
    expect(readFileSync(other.sleepyLedger, 'utf8').match(/^start \S+/gm)).toEqual(['start later']);
  } finally {
    await other.remove();
  }
});
