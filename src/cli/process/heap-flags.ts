/**
 * V8 flags that keep the memory of a long-running command close to its live data.
 * - Garbage and new space: without limits V8 lets garbage grow to four times the live heap, and new space to 32 MiB. After a load of 64
 *   concurrent calls RSS is then 133 MB instead of 93.
 * - Helper threads: a collection of this new space takes about a millisecond, and waking other threads for it costs more than they save.
 *   On one thread, a call takes 7 % less CPU (59 us instead of 64 at 16 concurrent calls over stdio, Node 20, 2 busy cores).
 * - Fragmentation: in the soak test, old space takes 38 MB for 22 MB of live objects after 9 minutes, and keeps growing. With compaction
 *   on every full collection it stays between 22 and 28 MB. Compaction costs 10 us of CPU per call under full load, so it is off while
 *   the process is busy.
 */
import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';
import { finishCompileCache } from './compile-cache.js';

const flags = ['--heap-growing-percent=50', '--no-parallel-scavenge'];

/**
 * Flags of a relay, which has little to do: its client waits for servers, not for the relay. If the optimizing compilers are off, their
 * code is never read from the disk (3.7 MB), and new space stays at 2 MB (2 MB less). After 20,000 calls a relay has 48.6 MB RSS instead
 * of 55.8; 10.9 MB of this is anonymous memory, instead of 14.4. The price is CPU: 20 us per call instead of 12. Maglev exists since
 * Node 24.
 */
const relayFlags = ['--no-opt', '--no-maglev', '--semi-space-growth-factor=1'];

/**
 * To be called after the code of the start has run, because this writes the code cache. Avoids `import()`, which loads Node's ES
 * module loader.
 */
export function limitRelay(): void {
  const { setFlagsFromString } = process.getBuiltinModule('node:v8');
  finishCompileCache();
  for (const flag of relayFlags) setFlagsFromString(flag);
}

/** The flags are set after the start, whose garbage collections need no limit. */
const beginAfterMs = 250;
const compactionEveryMs = 10_000;
/** Share of the last interval in which the event loop was busy. It is 0.2 in the soak test and 0.9 in a benchmark. */
const busyShare = 0.5;
/** Size of both halves of new space. With 64 calls in flight, most of their garbage is then dead before a collection would copy it. */
const newSpaceBytes = 8 * 1024 * 1024;

/**
 * Sets the flags once new space has `newSpaceBytes`. The size is checked after each collection: with a timer instead, new space
 * doubled (8 MB more). Not at the start: under other flags V8 rejects the code caches of Hostler and of Node's own modules.
 * V8 shrinks new space to 1 MB when the process is idle for 8 s, so it must be able to grow again after that. With 1 MB, a call in
 * flight outlives two collections and moves to old space: a call over NATS took twice the CPU.
 */
export function limitHeap(): void {
  const begin = () => {
    let hasFlags = false;
    let mayGrow = true;
    const look = () => {
      const newSpace = getHeapSpaceStatistics().find(({ space_name }) => space_name === 'new_space');
      const isSmall = (newSpace?.space_size ?? 0) < newSpaceBytes;
      if (isSmall === mayGrow) return;
      mayGrow = isSmall;
      if (!hasFlags) {
        hasFlags = true;
        // The cache is written first: V8 rejects a code cache that was written under other flags.
        finishCompileCache();
        for (const flag of flags) setFlagsFromString(flag);
        compactWhileIdle();
      }
      setFlagsFromString(`--semi-space-growth-factor=${isSmall ? 2 : 1}`);
    };
    new PerformanceObserver(look).observe({ entryTypes: ['gc'] });
    look();
  };
  setTimeout(begin, beginAfterMs).unref();
}

function compactWhileIdle(): void {
  let last = performance.eventLoopUtilization();
  const timer = setInterval(() => {
    const now = performance.eventLoopUtilization();
    const { utilization } = performance.eventLoopUtilization(now, last);
    last = now;
    setFlagsFromString(utilization < busyShare ? '--compact-on-every-full-gc' : '--no-compact-on-every-full-gc');
  }, compactionEveryMs);
  timer.unref();
}
