/**
 * `npm run bench -- wire`: compares Hostler's wire layer with a raw loop (the upper limit) and the official SDKs, with the same
 * echo server, in one run. Rounds are interleaved, so that other load slows all of them; the median round is reported.
 * Options: --rounds N (5), --seconds N per measurement (1).
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import os from 'node:os';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { LineReader } from '../dist/wire/line-reader.js';
import { contestants } from './contestants.mjs';
import { file, median, rounds, say, seconds } from './report.mjs';

const concurrencies = [1, 16, 64];

async function startHttp() {
  const child = spawn(process.execPath, [file('./echo-http.mjs')], { stdio: ['pipe', 'pipe', 'inherit'] });
  const [line] = await once(createInterface({ input: child.stdout }), 'line');
  return { url: /http:\S+/.exec(line)[0], stop: () => child.kill() };
}

/** name → concurrency → one {callsPerSecond, cpuUsPerCall} per round. */
function measure(transport, url) {
  const samples = {};
  for (const concurrency of concurrencies) {
    for (let round = 0; round < rounds; round++) {
      for (const name of Object.keys(contestants[transport])) {
        const argv = [file('./one-run.mjs'), transport, name, String(concurrency), String(seconds), url ?? ''];
        const result = JSON.parse(
          execFileSync(process.execPath, argv, {
            encoding: 'utf8',
            stdio: ['ignore', 'pipe', 'inherit'],
            // On Node 20 the SDKs leak listeners, which causes one warning per request.
            env: { ...process.env, NODE_NO_WARNINGS: '1' },
          }),
        );
        samples[name] ??= {};
        samples[name][concurrency] ??= [];
        samples[name][concurrency].push(result);
      }
    }
  }
  return samples;
}

const middle = (runs, key) => median(runs.map((run) => run[key]));

function table(title, results) {
  say(`\n### ${title}\n`);
  say(`| client | ${concurrencies.map((c) => `calls/s at ${c} | CPU µs per call at ${c}`).join(' | ')} |`);
  say(`| --- | ${concurrencies.map(() => '---: | ---:').join(' | ')} |`);
  for (const [name, row] of Object.entries(results)) {
    const cells = concurrencies.map(
      (c) => `${Math.round(middle(row[c], 'callsPerSecond'))} | ${middle(row[c], 'cpuUsPerCall').toFixed(1)}`,
    );
    say(`| ${name} | ${cells.join(' | ')} |`);
  }
}

const bars = [];
function bar(what, value, least) {
  bars.push(value >= least);
  say(`- ${value >= least ? 'holds' : 'MISSED'}: ${what}: ${value.toFixed(2)} (at least ${least})`);
}

/**
 * Ratios are computed within a round, in which both had the same other load, and the median ratio is reported. Both variants of
 * Hostler are judged: one passes bytes on, as a relay does; the other builds result objects, as the raw loop and the SDK clients
 * do.
 */
function judge(title, results, leastOfRaw) {
  for (const ours of ['hostler, relaying bytes', 'hostler']) {
    const ratio = (over, c) =>
      median(
        results[ours][c].map(({ callsPerSecond }, round) => callsPerSecond / results[over][c][round].callsPerSecond),
      );
    const cpu = (over, c) => middle(results[over][c], 'cpuUsPerCall') / middle(results[ours][c], 'cpuUsPerCall');
    say(`\n${title}, ${ours}:\n`);
    for (const c of [16, 64]) bar(`calls/s at ${c}, relative to the raw loop`, ratio('raw loop', c), leastOfRaw);
    for (const name of ['SDK 1.32', 'SDK 2.4']) bar(`calls/s at 64, relative to ${name}`, ratio(name, 64), 3);
    say(
      `- for comparison, CPU per call at 64, relative to Hostler: raw loop: ${cpu('raw loop', 64).toFixed(2)}; SDK 1.32: ${cpu('SDK 1.32', 64).toFixed(2)}; SDK 2.4: ${cpu('SDK 2.4', 64).toFixed(2)}`,
    );
  }
}

/** Mean cost of a one-byte chunk while `buffered` bytes of the line are already buffered. */
function dripCost(buffered) {
  const reader = new LineReader(
    64 * 1024 * 1024,
    () => {},
    () => {},
  );
  reader.push(Buffer.alloc(buffered, 'x'));
  const byte = Buffer.from('x');
  for (let i = 0; i < 20_000; i++) reader.push(byte);
  const startedMs = performance.now();
  for (let i = 0; i < 200_000; i++) reader.push(byte);
  return ((performance.now() - startedMs) * 1_000) / 200_000;
}

const load = os.loadavg()[0].toFixed(1);
say('# Wire layer, measured');
say('');
say(
  `${new Date().toISOString().slice(0, 10)}, Node ${process.version}, ${os.cpus().length} cores, load ${load} before the run,`,
);
say(`median of ${rounds} interleaved rounds of ${seconds} s. 60-byte echo; every client gets the same server process.`);
say('The raw loop parses and prints JSON and does nothing else: no deadlines, no checks, no supervision.');
const stdio = measure('stdio');
table('stdio', stdio);
const http = await startHttp();
const overHttp = measure('http', http.url);
http.stop();
table('HTTP', overHttp);
say('\n### One byte at a time\n');
const sizes = [1024, 64 * 1024, 1024 * 1024, 8 * 1024 * 1024];
dripCost(1024);
const drips = sizes.map((size) => median([1, 2, 3].map(() => dripCost(size))));
say('| bytes already waiting | µs per one-byte chunk |');
say('| ---: | ---: |');
for (const [i, size] of sizes.entries()) say(`| ${size} | ${drips[i].toFixed(3)} |`);
say('\n### Bars');
judge('stdio', stdio, 0.7);
judge('HTTP', overHttp, 0.8);
say('');
const what = 'cost of a one-byte chunk with 1 KiB waiting, divided by the cost with 8 MiB waiting (1: equal)';
bar(what, drips[0] / drips.at(-1), 0.5);
process.exit(bars.every(Boolean) ? 0 : 1);
