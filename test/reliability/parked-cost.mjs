/**
 * Measures the cost of idle servers in a real host; run with --expose-gc. Prints one JSON line. Arguments: servers, folder.
 * Uses a fake clock, because the start gate would take minutes for so many starts. A missing command parks the servers.
 */
import path from 'node:path';
import process from 'node:process';
import { createHost } from '../../dist/index.js';
import { FakeClock } from '../../dist/testing.js';
import { descriptors } from './counts.mjs';

const [servers, folder] = [Number(process.argv[2]), process.argv[3]];

const turn = () => new Promise((resolve) => setImmediate(resolve));

/** Heap size after all garbage was collected. */
async function heapBytes() {
  for (let i = 0; i < 5; i++) {
    await turn();
    globalThis.gc();
  }
  return process.memoryUsage().heapUsed;
}

/** An entry as parsed from a configuration: no text is shared. */
const entryOf = (at) => ({
  command: `/nowhere/server-${at}`,
  args: ['--root', `/srv/data/${at}`],
  env: { LEDGER: `/tmp/ledger-${at}` },
});

async function costs(count, name) {
  const clock = new FakeClock();
  const host = await createHost({}, { stateDir: path.join(folder, name), clock });
  const parkedNow = () => host.status().filter(({ state }) => state === 'parked').length;
  const before = { heap: await heapBytes(), fds: descriptors(), timers: clock.pendingTimers };
  for (let at = 0; at < count; at++) await host.spawn({ name: `s${at}`, ...entryOf(at) }, { lazy: true });
  const lazy = { heap: await heapBytes(), fds: descriptors(), timers: clock.pendingTimers };
  const starts = Array.from({ length: count }, (_, at) => host.start(`s${at}`).catch(() => {}));
  // Calls that wait at the gate for more than five seconds fail, but their servers are started.
  while (parkedNow() < count) {
    clock.advance(100);
    for (let i = 0; i < 20; i++) await turn();
  }
  await Promise.all(starts);
  starts.length = 0;
  const parked = { heap: await heapBytes(), fds: descriptors(), timers: clock.pendingTimers };
  // Timers of the host itself are not counted.
  const perServer = (now) => ({
    heapBytes: Math.round((now.heap - before.heap) / count),
    descriptors: now.fds - before.fds,
    timers: Math.floor((now.timers - before.timers) / count),
  });
  const result = { servers: count, parked: perServer(parked), lazy: perServer(lazy), isParked: parkedNow() };
  await host.close();
  return result;
}

// One warm-up round, so that objects that exist once are not counted.
await costs(50, 'first');
console.log(JSON.stringify(await costs(servers, 'second')));
process.exit(0);
