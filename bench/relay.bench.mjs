/**
 * Measures `hostler up --stdio`, the relay of each client: memory, CPU per call, and the time until it answers `initialize`. The
 * baseline is a Node process that copies stdin to stdout. On a busy machine CPU time is more reliable than elapsed time.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { file, median, rounds, say } from './report.mjs';

const calls = 20_000;
const atOnce = 16;
const node = process.execPath;
const main = file('../dist/cli/main.cjs');
const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-bench-'));
const config = path.join(folder, 'hostler.json');
writeFileSync(
  config,
  JSON.stringify({ mcpServers: { echo: { command: node, args: [file('./echo-stdio.mjs')] } }, idleExit: '1s' }),
);
const initialize = {
  method: 'initialize',
  params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'bench', version: '1' } },
};
const bars = [];
const bar = (what, value, most) => {
  bars.push(value <= most);
  say(`- ${value <= most ? 'holds' : 'MISSED'}: ${what}: ${value.toFixed(1)} (at most ${most})`);
};

/** CPU of all threads, in ms. */
const cpuMs = (pid) =>
  readdirSync(`/proc/${pid}/task`)
    .map((task) => Number(readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ')[0]) / 1e6)
    .reduce((sum, each) => sum + each, 0);
const memberMb = (pid, name) =>
  Number(new RegExp(`${name}:\\s+(\\d+) kB`).exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) / 1024;

/** A process that answers lines; `ask` resolves with the next line. */
function started(args) {
  const startedMs = performance.now();
  const child = spawn(node, args, { stdio: ['pipe', 'pipe', 'ignore'], cwd: folder });
  const exited = once(child, 'exit');
  let rest = '';
  let onLine = () => {};
  child.stdout.setEncoding('utf8');
  child.stdout.on('data', (chunk) => {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop();
    for (const line of lines) onLine(JSON.parse(line));
  });
  const send = (message) => child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
  return {
    pid: child.pid,
    send,
    listen: (listener) => (onLine = listener),
    first: () =>
      new Promise((resolve) => {
        onLine = () => resolve({ wallMs: performance.now() - startedMs, cpuMs: cpuMs(child.pid) });
        send({ id: 0, ...initialize });
      }),
    end: async () => {
      child.stdin.end();
      await exited;
    },
  };
}

const relay = (dataDir) => started([main, 'up', '--stdio', '--config', config, '--data-dir', dataDir]);
const pipe = () => started(['-e', 'process.stdin.pipe(process.stdout)']);

async function measured(process) {
  const first = await process.first();
  const idleMb = memberMb(process.pid, 'VmRSS');
  await process.end();
  return { ...first, idleMb };
}

/** Resolves when the host has ended: otherwise the next relay would join it. */
async function hostEnded(dataDir) {
  while (readdirSync(dataDir).includes('control.sock')) await new Promise((resolve) => setTimeout(resolve, 50));
}

const runs = { pipe: [], joining: [], starting: [] };
for (let round = 0; round <= rounds; round++) {
  const dataDir = path.join(folder, 'data');
  const bare = await measured(pipe());
  const holder = relay(dataDir);
  const starting = await holder.first();
  const joining = await measured(relay(dataDir));
  await holder.end();
  await hostEnded(dataDir);
  // The first round fills the compile cache for the next rounds.
  if (round === 0) continue;
  runs.pipe.push(bare);
  runs.joining.push(joining);
  runs.starting.push(starting);
}

const load = relay(path.join(folder, 'data'));
await load.first();
load.send({ method: 'notifications/initialized' });
const call = (id) =>
  load.send({ id, method: 'tools/call', params: { name: 'echo__echo', arguments: { text: 'x'.repeat(60) } } });
const cpuBefore = await new Promise((resolve, reject) => {
  let sent = 0;
  let answered = 0;
  let before = 0;
  load.listen(({ id, result, error }) => {
    if (id === undefined) return;
    if (error || result?.isError) return reject(new Error(JSON.stringify(error ?? result)));
    if (++answered === 1) before = cpuMs(load.pid);
    if (answered === calls) return resolve(before);
    if (sent < calls) call(++sent);
  });
  while (sent < atOnce) call(++sent);
});
const perCallUs = ((cpuMs(load.pid) - cpuBefore) * 1_000) / (calls - 1);
const [rssMb, anonymousMb] = [memberMb(load.pid, 'VmRSS'), memberMb(load.pid, 'RssAnon')];
await load.end();
await hostEnded(path.join(folder, 'data'));
rmSync(folder, { recursive: true, force: true });

const least = (which, key) => Math.min(...runs[which].map((run) => run[key]));
const middle = (which, key) => median(runs[which].map((run) => run[key]));
say('# The relay, measured\n');
say(
  `${new Date().toISOString().slice(0, 10)}, Node ${process.version}, ${os.cpus().length} cores, load ${os.loadavg()[0].toFixed(1)} after the run, ${rounds} interleaved rounds.\n`,
);
say('| until the answer to initialize | elapsed ms, median | elapsed ms, least | CPU ms of the process, least |');
say('| --- | ---: | ---: | ---: |');
for (const [which, text] of [
  ['pipe', 'a Node process that copies stdin to stdout'],
  ['joining', 'a relay that joins a host'],
  ['starting', 'a relay that starts the host'],
])
  say(
    `| ${text} | ${middle(which, 'wallMs').toFixed(0)} | ${least(which, 'wallMs').toFixed(0)} | ${least(which, 'cpuMs').toFixed(0)} |`,
  );
say(`\nThe copying process has ${middle('pipe', 'idleMb').toFixed(1)} MB RSS.\n`);
bar(
  'CPU of a relay that joins, relative to the copying process',
  least('joining', 'cpuMs') / least('pipe', 'cpuMs'),
  2.5,
);
bar(
  'elapsed time of a relay that starts the host, relative to the copying process',
  least('starting', 'wallMs') / least('pipe', 'wallMs'),
  4.5,
);
bar(`CPU of the relay per call with ${atOnce} calls in flight, us`, perCallUs, 25);
bar(`RSS after ${calls} calls, MB`, rssMb, 52);
bar(`anonymous memory after ${calls} calls, MB`, anonymousMb, 13);
process.exit(bars.every(Boolean) ? 0 : 1);
