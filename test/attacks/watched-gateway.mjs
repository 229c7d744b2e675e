/**
 * A gateway in a process of its own that watches itself: how long its event loop stood still, and what it holds. Driven by
 * messages of its parent (watched.ts). Arguments: the configuration as JSON, a folder for its state.
 *
 * Standing still is the time between two turns, or the processor time of this process between them if that is less: a process
 * that others keep waiting has used none, and one that is busy has used at least as much. What the runtime itself says of its
 * event loop is told beside it, whatever the reason.
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

/** Until collecting gives nothing back any more: what was freed is returned by other threads, later on a busy machine. */
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
    // What collecting the garbage took is nobody's stall.
    [wallMs, cpu] = [performance.now(), process.cpuUsage()];
    delay.reset();
    process.send({ rss: rssMax, held: held() });
  } else if (asked === 'read') {
    // The turn that is under way counts, and collecting the garbage does not.
    await new Promise((resolve) => setTimeout(resolve, everyMs * 3));
    const seen = { stallMs, delayMs: Math.max(0, delay.max / 1e6 - resolutionMs), rssMax, problems };
    await settled();
    process.send({ ...seen, rss: process.memoryUsage.rss(), held: held() });
  } else if (asked.startsWith('list ')) {
    // As after a reload: what it lists is read anew by a new process.
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
