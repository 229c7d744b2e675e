/**
 * A gateway in a separate process that measures the stalls of its event loop and its memory. Controlled by messages of its parent
 * (watched.ts). Arguments: the configuration as JSON, a folder for its state.
 *
 * A stall is the time between two turns of the event loop, or the CPU time of this process between them if that is less. So waiting
 * for a processor does not count, and a busy loop does. The delay that the runtime itself measures is reported too; it includes
 * both.
 */
import { monitorEventLoopDelay } from 'node:perf_hooks';
import process from 'node:process';
import { limitHeap } from '../../dist/cli/process/heap-flags.js';
import { createGateway } from '../../dist/gateway/index.js';
import { createHost } from '../../dist/index.js';

// As in `hostler up`.
limitHeap();
const [configText, stateDir] = process.argv.slice(2);
const config = JSON.parse(configText);
const everyMs = 2;
const problems = [];

const host = await createHost(
  { mcpServers: config.mcpServers ?? {} },
  { stateDir, onProblem: (error) => problems.push(String(error?.message ?? error)) },
);
const gateway = await createGateway({
  host,
  settings: { listen: { host: '127.0.0.1', port: 0 }, auth: 'none', version: '0.0.0' },
  onProblem: (error) => problems.push(String(error?.stack ?? error)),
});
const url = await gateway.listen();

const resolutionMs = 2;
const delay = monitorEventLoopDelay({ resolution: resolutionMs });
delay.enable();

let stallMs = 0;
let rssMax = 0;
let wallMs = performance.now();
let cpu = process.cpuUsage();
function turn() {
  const nowMs = performance.now();
  const { user, system } = process.cpuUsage(cpu);
  cpu = process.cpuUsage();
  stallMs = Math.max(stallMs, Math.min(nowMs - wallMs - everyMs, (user + system) / 1_000));
  rssMax = Math.max(rssMax, process.memoryUsage.rss());
  wallMs = nowMs;
  setTimeout(turn, everyMs);
}
turn();

function held() {
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

/** Collects garbage until memory no longer shrinks: other threads return freed memory, and do so later on a busy machine. */
async function settled() {
  let [least, idle] = [Number.POSITIVE_INFINITY, 0];
  for (let i = 0; i < 30 && idle < 3; i++) {
    await new Promise((resolve) => setTimeout(resolve, 15));
    globalThis.gc?.();
    const rss = process.memoryUsage.rss();
    idle = rss < least - 1_048_576 ? 0 : idle + 1;
    least = Math.min(least, rss);
  }
}

process.on('message', async (asked) => {
  if (asked === 'begin') {
    await settled();
    [stallMs, rssMax] = [0, process.memoryUsage.rss()];
    // The time of this garbage collection is not a stall.
    [wallMs, cpu] = [performance.now(), process.cpuUsage()];
    delay.reset();
    process.send({ rss: rssMax, held: held() });
  } else if (asked === 'read') {
    // The current turn counts; the garbage collection does not.
    await new Promise((resolve) => setTimeout(resolve, everyMs * 3));
    const seen = { stallMs, delayMs: Math.max(0, delay.max / 1e6 - resolutionMs), rssMax, problems };
    await settled();
    process.send({ ...seen, rss: process.memoryUsage.rss(), held: held() });
  } else if (asked.startsWith('list ')) {
    // As after a reload: a new process is started, and its lists are read.
    const server = asked.slice('list '.length);
    let askedMs = performance.now();
    const outcome = await host
      .reload(server)
      .then(() => host.start(server))
      .then(() => {
        askedMs = performance.now();
        return host.tools(server);
      })
      .then(
        (tools) => tools.length,
        (error) => error.code ?? String(error),
      );
    process.send({ outcome, tookMs: performance.now() - askedMs });
  } else if (asked === 'close') {
    await gateway.close(0);
    await host.close();
    process.exit(0);
  }
});
process.on('disconnect', () => process.exit(0));
process.send({ url });
