/** P1: with any wrapper between the host and the server, a stop leaves no process, or reports it. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { isAlive } from '../is-alive.js';
import { hasProc } from '../real-table.js';
import { carriers, fakes, profiles, until, useBench } from './harness.js';

const bench = useBench();
const script = path.join(fakes, 'stdio-wrappers.sh');
const inGroup = ['chain', 'stubborn', 'background', 'double', 'nohup'];
const leaving = ['setsid', 'daemon', 'wiped'];

async function startAndStop(kind: string, sandbox: 'group' | 'standard') {
  const talk = await bench.open({ command: script, args: [kind], sandbox });
  await until(
    () => talk.messages.length + talk.channel.counters.junk > 0 || talk.closed.length > 0,
    'the server is ready',
  );
  expect(talk.closed).toEqual([]);
  await until(() => carriers(bench.keeper.instanceId).length > 1, 'it has processes beside the first');
  await talk.channel.close();
  expect(talk.closed).toHaveLength(1);
  return talk;
}

describe.each(profiles)('P1 wrappers under profile %s:', (sandbox) => {
  test.each(inGroup)('nothing is left of %s', async (kind) => {
    const { channel } = await startAndStop(kind, sandbox);
    expect(carriers(bench.keeper.instanceId)).toEqual([]);
    expect(channel.describe()).toMatchObject({ stop: { left: 0, escaped: 0 } });
  });
});

test.runIf(hasProc).each(leaving)('P1 wrappers: the sandbox contains %s', async (kind) => {
  const { channel } = await startAndStop(kind, 'standard');
  expect(carriers(bench.keeper.instanceId)).toEqual([]);
  expect(channel.describe()).toMatchObject({ stop: { left: 0, escaped: 0 } });
});

// By its mark, or by its descent: without /proc only the second can be seen.
test.runIf(hasProc).each(leaving)('P1 wrappers: under profile group %s escapes, and is counted', async (kind) => {
  const { channel } = await startAndStop(kind, 'group');
  expect(channel.describe()).toMatchObject({ stop: { left: 0, escaped: 1 } });
  const pid = channel.describe().stop?.escapedPids[0] as number;
  expect(carriers(bench.keeper.instanceId)).toEqual(kind === 'wiped' ? [] : [pid]);
  expect(readFileSync(`/proc/${pid}/cmdline`, 'utf8')).toContain('sleep');
  process.kill(pid, 'SIGKILL');
  await until(() => !isAlive(pid), 'the escaped is gone');
});
