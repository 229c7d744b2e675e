/** The stop ladder on real child processes: each kind ends at its expected rung. */

import { describe, expect, test } from 'vitest';
import { notificationFrame } from '../../src/wire/channel.js';
import { timeLimitMs } from '../tier.js';
import { carriers, profiles, shortPace, until, useBench } from './harness.js';

const bench = useBench();

/** Before its first answer, the server has not installed its signal handlers. */
async function serving(spec: Parameters<typeof bench.stubWith>[0], ...flags: string[]) {
  const talk = await bench.stubWith(spec, ...flags);
  await talk.send().answered;
  return talk;
}

describe.each(profiles)('S7 ordered stop under profile %s:', (sandbox) => {
  test('an obedient server is gone at once', async () => {
    const { channel } = await serving({ sandbox });
    const startMs = performance.now();
    await channel.close();
    expect(performance.now() - startMs).toBeLessThan(timeLimitMs(300));
    expect(channel.describe().stop).toMatchObject({ rung: 'eof', exitCode: 0, left: 0 });
  });

  test.each([
    ['ignores the end of its input', ['--ignore-eof'], 'term'],
    ['ignores SIGTERM as well', ['--ignore-eof', '--ignore-term'], 'kill'],
    ['leaves a grandchild in its group', ['--grandchild', 'plain'], 'term'],
  ])('a server that %s still ends', async (_name, flags, rung) => {
    const { channel } = await serving({ sandbox }, ...flags);
    await channel.close();
    const { stop } = channel.describe();
    expect(stop).toMatchObject({ left: 0, escaped: 0 });
    // In the sandbox the grandchild ends with its namespace: mostly before SIGTERM is sent, on a busy machine after it.
    const rungs = sandbox === 'standard' && flags.includes('plain') ? ['eof', 'term'] : [rung];
    expect(rungs).toContain(stop?.rung);
    expect(carriers(bench.keeper.instanceId)).toEqual([]);
  });

  test('a stopped server is continued so that it receives SIGTERM', async () => {
    const { channel } = await serving({ sandbox });
    for (const pid of carriers(bench.keeper.instanceId)) process.kill(pid, 'SIGSTOP');
    await channel.close();
    expect(channel.describe().stop).toMatchObject({ rung: 'term', left: 0 });
  });
});

test('S7 ordered stop: repeated calls of close share one stop', async () => {
  const { channel, closed } = await serving({});
  const promises = [channel.close(), channel.close(), channel.close()];
  expect(new Set(promises).size).toBe(1);
  await Promise.all(promises);
  expect(closed).toHaveLength(1);
  expect(closed[0]?.error.toJSON()).toMatchObject({ code: 'transport', reason: 'closed', exitCode: 0 });
  expect(channel.send(notificationFrame('x', undefined))?.toJSON()).toMatchObject({
    reason: 'closed',
    execution: 'not_executed',
  });
});

test('S7 ordered stop: fifty servers of all kinds at once take as long as the slowest', async () => {
  const kinds = [[], ['--ignore-eof'], ['--ignore-eof', '--ignore-term'], ['--grandchild', 'plain'], []];
  const talks = await Promise.all(Array.from({ length: 50 }, (_, i) => serving({}, ...(kinds[i % 5] as string[]))));
  for (const [i, { channel }] of talks.entries()) if (i % 5 === 4) process.kill(channel.describe().pid, 'SIGSTOP');
  const startMs = performance.now();
  await bench.keeper.closeAll(shortPace);
  const tookMs = performance.now() - startMs;
  await until(() => talks.every(({ closed }) => closed.length === 1), 'every channel is closed');
  expect(carriers(bench.keeper.instanceId)).toEqual([]);
  expect(bench.keeper.liveChildren).toBe(0);
  expect(tookMs).toBeLessThan(timeLimitMs(shortPace.eofMs + shortPace.termMs + 500));
});

test('S7 ordered stop: the group of a server that dies by itself is stopped', async () => {
  const talk = await bench.stub('--grandchild', 'plain', '--exit-on-call', '3');
  talk.send();
  expect((await talk.whenClosed()).toJSON()).toMatchObject({ reason: 'exit', exitCode: 3 });
  await until(() => carriers(bench.keeper.instanceId).length === 0, 'the grandchild is gone');
  await talk.channel.close();
  expect(talk.channel.describe().stop).toMatchObject({ rung: 'term', exitCode: 3 });
});

test('S7 ordered stop: after the end no process is started', async () => {
  await bench.keeper.closeAll();
  await expect(bench.stub()).rejects.toMatchObject({ code: 'connect_failed', details: { reason: 'shutting_down' } });
});
