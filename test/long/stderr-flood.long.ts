/** P2 at full count: one gibibyte of stderr while calls are answered, compared with a quiet part of the same run. */
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { systemClock } from '../../src/kernel/clock.js';
import { ChildProcesses } from '../../src/transports/stdio/child-processes.js';
import { openStdio } from '../../src/transports/stdio/stdio-channel.js';
import { Peer } from '../../src/wire/peer.js';

const script = path.join(fileURLToPath(new URL('../fakes', import.meta.url)), 'stdio-flood.pl');

/** Calls one after another until the server reports the end of its other part. */
async function callsDuring(code: string) {
  const children = new ChildProcesses({ clock: systemClock, ambient: process.env });
  const channel = await openStdio(
    { server: 'flood', command: 'perl', args: [script, code] },
    { clock: systemClock, cleanText: (text) => text, children },
  );
  let isOver = false;
  const peer = new Peer('flood', channel, systemClock, {
    notification: ({ method }) => {
      isOver ||= method === 'flood';
    },
  });
  const rssBefore = process.memoryUsage.rss();
  const tookMs: number[] = [];
  let rssMax = rssBefore;
  while (!isOver) {
    const startedMs = performance.now();
    await peer.request('tools/call', '{}', { deadlineAtMs: systemClock.nowMs() + 60_000 });
    tookMs.push(performance.now() - startedMs);
    if (tookMs.length % 64 === 0) rssMax = Math.max(rssMax, process.memoryUsage.rss());
  }
  await children.closeAll();
  tookMs.sort((a, b) => a - b);
  return {
    calls: tookMs.length,
    p99Ms: tookMs[Math.floor(tookMs.length * 0.99)] as number,
    grewMiB: (rssMax - rssBefore) / 1_048_576,
  };
}

test('P2 stderr flood of 1 GiB: the slowest hundredth of calls at most twice as slow, at most 16 MiB more', async () => {
  await callsDuring('select undef, undef, undef, 1');
  const quiet = await callsDuring('select undef, undef, undef, 4');
  const flooded = await callsDuring('my $line = ("x" x 65535)."\\n"; for (1..16384) { syswrite STDERR, $line }');
  console.log('P2', JSON.stringify({ quiet, flooded, ratio: flooded.p99Ms / quiet.p99Ms }));
  expect(flooded.grewMiB).toBeLessThanOrEqual(16);
  expect(flooded.p99Ms / quiet.p99Ms).toBeLessThanOrEqual(2);
});
