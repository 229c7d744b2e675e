/**
 * Loaded into a process with `--import`: writes its longest event-loop delay in ms to $LOOP_DELAY when it ends.
 * SIGUSR2 starts the measurement again.
 */
import { writeFileSync } from 'node:fs';
import { monitorEventLoopDelay } from 'node:perf_hooks';

// A coarser resolution costs less, for processes whose CPU time is measured.
const delay = monitorEventLoopDelay({ resolution: Number(process.env.LOOP_DELAY_RESOLUTION_MS ?? 1) });
delay.enable();
// The start of the process is not measured.
setTimeout(() => delay.reset(), 1_000).unref();
process.on('SIGUSR2', () => delay.reset());
process.on('exit', () => {
  if (process.env.LOOP_DELAY) writeFileSync(process.env.LOOP_DELAY, String(delay.max / 1e6));
});
