/** Loaded into a process with `--import`: writes how long its event loop stood still at most, in ms, to $LOOP_DELAY when it ends. */
import { writeFileSync } from 'node:fs';
import { monitorEventLoopDelay } from 'node:perf_hooks';

// A coarser look costs less where the process itself is measured.
const delay = monitorEventLoopDelay({ resolution: Number(process.env.LOOP_DELAY_RESOLUTION_MS ?? 1) });
delay.enable();
// What its start takes is over before anybody asks anything of it.
setTimeout(() => delay.reset(), 1_000).unref();
process.on('exit', () => {
  if (process.env.LOOP_DELAY) writeFileSync(process.env.LOOP_DELAY, String(delay.max / 1e6));
});
