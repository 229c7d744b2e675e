import { expect, test } from 'vitest';
import { FakeServer } from '../../test/fakes/supervised-server.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { drainMsMax, Run } from './run.js';
import { gateAfter, StartGate } from './start-gate.js';

/** An open run, whose connection reports the time it was given to drain. */
async function open() {
  const clock = new FakeClock();
  const server = new FakeServer(clock);
  const said: string[] = [];
  const run = new Run('a', {
    opened: () => said.push('opened'),
    failed: () => said.push('failed'),
    lost: () => said.push('lost'),
    closed: () => said.push('closed'),
    closeFailed: () => said.push('close failed'),
  });
  let clear = () => {};
  const given: number[] = [];
  const connect: typeof server.connect = async (...args) => {
    const connection = await server.connect(...args);
    return Object.assign(connection, {
      drain: (withinMs: number) => {
        given.push(withinMs);
        return new Promise<void>((resolve) => {
          clear = resolve;
          clock.at(clock.nowMs() + withinMs, resolve);
        });
      },
    });
  };
  run.open(1, new StartGate(clock), connect);
  await clock.advanceAsync(0);
  return { clock, server, run, said, given, clear: () => clear() };
}

test('D-12 a graceful close closes the connection when no call is left', async () => {
  const { clock, server, run, said, given, clear } = await open();
  run.close(true);
  await clock.advanceAsync(drainMsMax - 1);
  expect([given, server.closed, said]).toEqual([[drainMsMax], 0, ['opened']]);
  // Whatever happens meanwhile, the run is closed only once.
  server.connection?.die();
  run.close(true);
  clear();
  await clock.advanceAsync(0);
  expect([server.closed, said]).toEqual([1, ['opened', 'closed']]);
});

test('D-12 a graceful close closes the connection when the grace time is over, even if calls are left', async () => {
  const { clock, server, run, said } = await open();
  run.close(true);
  await clock.advanceAsync(drainMsMax);
  expect([server.closed, said]).toEqual([1, ['opened', 'closed']]);
});

test('a failed run is closed at once', async () => {
  const { server, run, said, given } = await open();
  run.close(false);
  await Promise.resolve();
  expect([given, server.closed]).toEqual([[], 1]);
  await Promise.resolve();
  await Promise.resolve();
  expect(said).toEqual(['opened', 'closed']);
});

test('a run that waits for the end of another one takes no place at the start gate until then, and can be withdrawn', async () => {
  const clock = new FakeClock();
  const gate = new StartGate(clock, { concurrent: 1 });
  let leave = () => {};
  const after = gateAfter(new Promise<void>((resolve) => (leave = resolve)), gate);
  const began: string[] = [];
  const request = (name: string) => ({ isStillNeeded: () => true, begin: () => void began.push(name) });
  const withdraw = after.enter(request('withdrawn'));
  const withdrawLate = after.enter(request('kept'));
  expect([withdraw(), gate.waiting, began]).toEqual([true, 0, []]);
  leave();
  await clock.advanceAsync(0);
  expect([began, withdrawLate()]).toEqual([['kept'], false]);
});
