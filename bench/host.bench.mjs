/**
 * `npm run bench -- host`: the cost of a host in addition to a bare session, with the same echo server, in one run. Rounds are
 * interleaved, so that other load slows both; ratios are computed within a round, and the median ratio is reported.
 * Options: --rounds N (5), --seconds N per measurement (1).
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { createHost } from '../dist/index.js';
import { contestants, echoStdio as echo } from './contestants.mjs';
import { file, median, rounds, say, seconds } from './report.mjs';

const concurrencies = [16, 64];
const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-bench-'));
const bars = [];
const bar = (what, value, holds, limit) => {
  bars.push(holds);
  say(`- ${holds ? 'holds' : 'MISSED'}: ${what}: ${value.toFixed(2)} (${limit})`);
};

/** The timers of a host do not keep the process alive. */
const alive = setInterval(() => {}, 1_000);

/** Each contestant runs in a separate process, as in real use: in one process the code of the others would slow it down. */
function callsPerSecond(name, concurrency) {
  const args = [file('./one-run.mjs'), 'host', name, String(concurrency), String(seconds)];
  return JSON.parse(execFileSync(process.execPath, args, { encoding: 'utf8' })).callsPerSecond;
}

/** name → concurrency → calls per second in each round. */
function measure(names) {
  const samples = Object.fromEntries(
    names.map((name) => [name, Object.fromEntries(concurrencies.map((each) => [each, []]))]),
  );
  for (let round = 0; round < rounds; round++)
    // The order changes from round to round, so that periodic other load does not always hit the same contestant.
    for (const concurrency of concurrencies)
      for (const name of round % 2 ? [...names].reverse() : names)
        samples[name][concurrency].push(callsPerSecond(name, concurrency));
  return samples;
}

/** Mean time in µs of an answer from the cache, for sequential calls. */
async function cacheHitCost() {
  const entry = {
    command: 'perl',
    args: [file('../test/fakes/ledger-server.pl')],
    env: { LEDGER: path.join(folder, 'ledger'), HINT: '"ttlMs":3600000' },
  };
  const opened = await createHost({ mcpServers: { kept: entry } }, { stateDir: path.join(folder, 'cache') });
  const ask = () => opened.call('kept', 'count', '{"nonce":"one"}');
  const load = async (count) => {
    const startedMs = performance.now();
    for (let i = 0; i < count; i++) await ask();
    return ((performance.now() - startedMs) * 1_000) / count;
  };
  await load(20_000);
  const costs = [];
  for (let round = 0; round < rounds; round++) costs.push(await load(20_000));
  const { hits, misses } = opened.cacheStats();
  await opened.close();
  if (misses !== 1) throw new Error(`the cache was missed ${misses} times and hit ${hits} times`);
  return median(costs);
}

/** Time in ms to open a host with a thousand configured servers, none of which is started. */
async function registerCost() {
  const mcpServers = Object.fromEntries(Array.from({ length: 1_000 }, (_, i) => [`s${i}`, { ...echo }]));
  const startedMs = performance.now();
  const opened = await createHost({ mcpServers }, { stateDir: path.join(folder, 'many') });
  const tookMs = performance.now() - startedMs;
  const known = opened.status().length;
  await opened.close();
  if (known !== 1_000) throw new Error(`${known} servers were registered`);
  return tookMs;
}

/** The cost per idle server in a host with a thousand of them, measured in a separate process. */
function restCost() {
  const script = file('../test/reliability/parked-cost.mjs');
  const rest = mkdtempSync(path.join(folder, 'rest-'));
  return JSON.parse(execFileSync(process.execPath, ['--expose-gc', script, '1000', rest], { encoding: 'utf8' }));
}

say('# The host, measured');
say('');
say(
  `${new Date().toISOString().slice(0, 10)}, Node ${process.version}, ${os.cpus().length} cores, load ${os.loadavg()[0].toFixed(1)} before the run,`,
);
say(
  `median of ${rounds} interleaved rounds of ${seconds} s. 60-byte echo over stdio, each client in a process of its own with its own server.`,
);
// Measured first, before any code is optimised, because a real host is opened in a new process.
const registerMs = await registerCost();
const results = measure(Object.keys(contestants.host));
say(`\n| client | ${concurrencies.map((c) => `calls/s at ${c}`).join(' | ')} |`);
say(`| --- | ${concurrencies.map(() => '---:').join(' | ')} |`);
for (const [name, row] of Object.entries(results))
  say(`| ${name} | ${concurrencies.map((c) => Math.round(median(row[c]))).join(' | ')} |`);
const hitUs = await cacheHitCost();
say('\n### Bars\n');
for (const c of concurrencies) {
  const ratios = results.host[c].map((value, round) => value / results['bare session'][c][round]);
  const ratio = median(ratios);
  bar(`host.call, calls/s at ${c}, relative to a bare session`, ratio, ratio >= 0.85, 'at least 0.85');
  say(`  rounds: ${ratios.map((each) => each.toFixed(2)).join(', ')}`);
}
bar('registering 1,000 lazy servers, ms', registerMs, registerMs <= 200, 'at most 200');
bar('an answer from the cache, µs', hitUs, hitUs <= 10, 'at most 10');
const { parked, lazy } = restCost();
for (const [what, cost] of Object.entries({ parked, lazy })) {
  bar(`heap of each of 1,000 ${what} servers, bytes`, cost.heapBytes, cost.heapBytes <= 4_096, 'at most 4,096');
  bar(`descriptors of all 1,000 ${what} servers`, cost.descriptors, cost.descriptors === 0, 'none');
  bar(`timers of each of 1,000 ${what} servers`, cost.timers, cost.timers <= 1, 'at most 1');
}
clearInterval(alive);
rmSync(folder, { recursive: true, force: true });
process.exit(bars.every(Boolean) ? 0 : 1);
