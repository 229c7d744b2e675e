/**
 * A real child that is stopped by a signal: it runs and says nothing. It is doubted, checked before the next call, and
 * replaced; one that goes on in time is the run it was before.
 */
import { expect, onTestFinished, test } from 'vitest';
import { eventually } from '../eventually.js';
import { failureOf, outcomeOf } from './harness.js';
import { MoodyHost } from './moody-host.js';

/** Lets time pass, as the ladder that ends a child needs it to, until it is so. */
const inTime = (moody: MoodyHost, what: string, isSo: () => boolean) =>
  eventually(what, () => {
    moody.clock.advance(50);
    return isSo();
  });

const states = ({ events }: MoodyHost) => events.flatMap((event) => (event.kind === 'state' ? [event.to] : []));

function stop({ row }: MoodyHost): () => void {
  const pid = row.pid as number;
  process.kill(pid, 'SIGSTOP');
  const goOn = () => {
    try {
      process.kill(pid, 'SIGCONT');
    } catch {
      // It is gone, as it should be.
    }
  };
  onTestFinished(goOn);
  return goOn;
}

/** A call is under way, nothing was heard for 30 s, and the question after that was not answered for 5 s. */
async function doubted(moody: MoodyHost) {
  const call = failureOf(moody.call('write', {}, { deadlineMs: 60_000 }));
  await untilSuspect(moody);
  return { call };
}

async function untilSuspect(moody: MoodyHost): Promise<void> {
  await moody.clock.advanceAsync(30_000);
  expect(moody.row.state).toBe('ready');
  await moody.clock.advanceAsync(5_000);
  expect(moody.row.state).toBe('suspect');
}

test('a stopped child is checked before the next call, which ends with a code; the run is replaced, and calls go on', async () => {
  const moody = await MoodyHost.open({ timeouts: { call: '10m' } });
  await moody.call();
  stop(moody);
  const { call: first } = await doubted(moody);
  const second = outcomeOf(moody.call());
  expect(moody.row.state).toBe('suspect');
  await moody.clock.advanceAsync(5_000);
  expect(await second).toBe('reconnecting');
  await inTime(moody, 'the next run is ready', () => moody.row.run === 2 && moody.row.state === 'ready');
  expect((await first).code).toBe('outcome_uncertain');
  expect(await outcomeOf(moody.call())).toBe('ok');
  expect(moody.row).toMatchObject({ restart_count: 1, lastError: { code: 'transport' } });
  // What never reached the child was not done: the call before it, and the one after.
  expect([moody.starts, moody.calls]).toEqual([2, 2]);
  expect(states(moody)).toEqual(['connecting', 'ready', 'suspect', 'closing', 'backing_off', 'connecting', 'ready']);
});

test('nobody need call: further misses end the run of a stopped child by themselves', async () => {
  const moody = await MoodyHost.open({ timeouts: { call: '10m' } });
  await moody.call();
  stop(moody);
  const { call } = await doubted(moody);
  await moody.clock.advanceAsync(10_000);
  expect(moody.row.state).not.toBe('suspect');
  await inTime(moody, 'the next run is ready', () => moody.row.run === 2 && moody.row.state === 'ready');
  expect((await call).code).toBe('outcome_uncertain');
});

test('D-17 a suspect that goes on is no new run: what its breaker has counted stays', async () => {
  const moody = await MoodyHost.open();
  await moody.call();
  await moody.timeOut(4);
  const goOn = stop(moody);
  const list = moody.host.tools('a', { deadlineMs: 60_000 });
  await untilSuspect(moody);
  goOn();
  await inTime(moody, 'it is heard again', () => moody.row.state === 'ready');
  expect(await list).toHaveLength(2);
  expect(moody.row).toMatchObject({ run: 1, consecutive_failures: 4, circuit: 'closed' });
  await moody.timeOut(1);
  expect([moody.starts, await outcomeOf(moody.call())]).toEqual([1, 'circuit_open']);
});
