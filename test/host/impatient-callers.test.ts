/**
 * A real child that hangs for ever while callers continue to call it and none waits for `timeouts.call`. Clients of the
 * official SDKs cancel after 60 s, just before the host's own timeout. The host must still detect the hung child.
 */
import { expect, onTestFinished, test } from 'vitest';
import { outcomeOf } from './harness.js';
import { MoodyHost } from './moody-host.js';

/** Virtual seconds until the hung child is replaced, under one call each `everyMs`; undefined after 5 minutes. */
async function replacedAfterS(
  everyMs: number,
  call: (moody: MoodyHost) => Promise<string>,
): Promise<number | undefined> {
  const moody = await MoodyHost.open({ timeouts: { call: '60s' } });
  await moody.call();
  const pid = moody.row.pid as number;
  process.kill(pid, 'SIGSTOP');
  onTestFinished(() => {
    try {
      process.kill(pid, 'SIGCONT');
    } catch {
      // The process was replaced.
    }
  });
  const startMs = moody.clock.nowMs();
  for (let nextMs = startMs; moody.clock.nowMs() < startMs + 300_000; ) {
    if (moody.clock.nowMs() >= nextMs) {
      nextMs += everyMs;
      void call(moody);
    }
    await moody.clock.advanceAsync(500);
    if (moody.row.state === 'closing' || moody.row.run !== 1) return (moody.clock.nowMs() - startMs) / 1_000;
  }
  return undefined;
}

test.each([1_000, 4_000])(
  'W10 a child that hangs under calls with deadlines of %d ms is replaced',
  async (deadlineMs) => {
    const seconds = await replacedAfterS(deadlineMs / 2, (moody) => outcomeOf(moody.call('write', {}, { deadlineMs })));
    expect(seconds).toBeLessThan(120);
  },
);

test.each([4_000, 30_000])(
  'W10 a child that hangs under calls that are cancelled after %d ms is replaced',
  async (afterMs) => {
    const seconds = await replacedAfterS(afterMs / 2, (moody) => {
      const caller = new AbortController();
      moody.clock.at(moody.clock.nowMs() + afterMs, () => caller.abort());
      return outcomeOf(moody.call('write', {}, { signal: caller.signal }));
    });
    expect(seconds).toBeLessThan(240);
  },
);
