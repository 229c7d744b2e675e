/**
 * Compares the gateway, in one run, with the best that Node can do: a plain relay of the same calls, a server that answers with
 * constant bytes, and a Node process that only starts and answers. Hostler runs with key, role, budget, cache, metrics and supervision.
 * Not here: the load (http-load.mjs), the limits (plain-relay.mjs, constant-http.mjs), the processes (gateway-run.mjs).
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { benchKey, freePort, fullPolicy, hostler, killed, listening, rssBytes, timeToAnswer } from './gateway-run.mjs';
import { file, median, rounds, say, seconds, wanted } from './report.mjs';

const concurrencies = [1, 16, 64];
const cpuConcurrencies = [16, 64];
/** Length of the measured part of a run, after a warm-up of 8 s and 20,000 calls. */
const cpuSeconds = Math.max(seconds, 3);
const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-bench-'));
const node = process.execPath;
const bars = [];
const bar = (what, value, holds, asked) => {
  bars.push(holds);
  say(`- ${holds ? 'holds' : 'MISSED'}: ${what}: ${value} (${asked})`);
};
/** `pid`: a newly started process whose CPU per call is measured. */
function load(url, key, what, name, concurrency, pid) {
  const args = [file('./http-load.mjs'), url, key, what, name, String(concurrency), String(pid ? cpuSeconds : seconds)];
  if (pid) args.push(String(pid));
  return JSON.parse(execFileSync(node, args, { encoding: 'utf8' }));
}
const middle = (runs, key) => median(runs.map((run) => run[key]));

/** Measures the contestants in turn, so that other load on the machine affects all of them. */
async function calls(title, upstream, relayArgs, direct) {
  const relay = await listening(node, [file('./plain-relay.mjs'), ...relayArgs]);
  const gateway = await hostler(folder, { echo: upstream });
  const contestants = {
    ...(direct ? { direct: { url: direct, key: '' } } : {}),
    'plain relay': { url: relay.url, key: '' },
    Hostler: { url: `${gateway.url}/echo`, key: gateway.key },
  };
  // After some ten thousand calls both run optimised code.
  for (let warmUps = 0; warmUps < 3; warmUps++)
    for (const { url, key } of Object.values(contestants)) load(url, key, 'call', 'echo', 64);
  const results = {};
  for (const concurrency of concurrencies)
    for (let round = 0; round < rounds; round++)
      for (const [name, { url, key }] of Object.entries(contestants)) {
        results[name] ??= {};
        results[name][concurrency] ??= [];
        results[name][concurrency].push(load(url, key, 'call', 'echo', concurrency));
      }
  await relay.end();
  await gateway.end();
  say(`\n### ${title}\n`);
  say(`| client | ${concurrencies.map((c) => `calls/s at ${c} | p50 ms at ${c} | p99 ms at ${c}`).join(' | ')} |`);
  say(`| --- | ${concurrencies.map(() => '---: | ---: | ---:').join(' | ')} |`);
  for (const [name, row] of Object.entries(results)) {
    const cells = concurrencies.map((c) =>
      [
        Math.round(middle(row[c], 'perSecond')),
        middle(row[c], 'p50Ms').toFixed(2),
        middle(row[c], 'p99Ms').toFixed(2),
      ].join(' | '),
    );
    say(`| ${name} | ${cells.join(' | ')} |`);
  }
  say('');
  for (const c of concurrencies) {
    const ratio = (key) =>
      median(results.Hostler[c].map((run, round) => run[key] / results['plain relay'][c][round][key]));
    const rate = ratio('perSecond');
    const p50 = ratio('p50Ms');
    bar(`${title}, calls/s at ${c}, relative to the plain relay`, rate.toFixed(2), rate >= 0.85, 'at least 0.85');
    bar(`${title}, p50 at ${c}, relative to the plain relay`, p50.toFixed(2), p50 <= 1.25, 'at most 1.25');
  }
}

/** Measures the CPU per call of new processes in turn, so that other load on the machine affects both. */
async function cpuPerCall(title, upstream, relayArgs) {
  say(`\n### ${title}, CPU per call of fresh processes\n`);
  say('| concurrency | process | first 3 s, us | steady, us | calls/s | p99 ms | RSS after load, MB |');
  say('| ---: | --- | ---: | ---: | ---: | ---: | ---: |');
  /** Lines that are printed below the table. */
  const judged = [];
  const start = () => hostler(folder, { echo: upstream }, `cpu-${relayArgs[0]}`, { settings: fullPolicy });
  // Not measured: the first two starts in a data directory store compiled code.
  for (let starts = 0; starts < 2; starts++) {
    const unmeasured = await start();
    load(`${unmeasured.url}/echo`, benchKey, 'call', 'echo', 16);
    await unmeasured.end();
  }
  for (const concurrency of cpuConcurrencies) {
    const runs = { 'plain relay': [], Hostler: [] };
    for (let round = 0; round < rounds; round++) {
      const relay = await listening(node, [file('./plain-relay.mjs'), ...relayArgs]);
      runs['plain relay'].push(await freshRun(relay, relay.url, '', concurrency));
      const gateway = await start();
      runs.Hostler.push(await freshRun(gateway, `${gateway.url}/echo`, benchKey, concurrency));
    }
    for (const [name, own] of Object.entries(runs)) {
      const shown = (key, digits) => middle(own, key).toFixed(digits);
      say(
        `| ${concurrency} | ${name} | ${shown('firstUs', 1)} | ${shown('steadyUs', 1)} | ${shown('perSecond', 0)} | ${shown('p99Ms', 2)} | ${shown('rssMb', 1)} |`,
      );
    }
    const ratio = (key) => median(runs.Hostler.map((run, round) => run[key] / runs['plain relay'][round][key]));
    const [first, steady, rss] = [ratio('firstUs'), ratio('steadyUs'), middle(runs.Hostler, 'rssMb')];
    const at = `${title} at ${concurrency}`;
    const cpu = `${at}, CPU per call relative to the plain relay`;
    judged.push(() => bar(cpu, steady.toFixed(2), steady <= 1.1, 'at most 1.1'));
    judged.push(() => bar(`${at}, RSS after load, MB`, rss.toFixed(1), rss < 100, 'below 100'));
    judged.push(() =>
      say(
        `- goal ${first <= 1.2 ? 'reached' : 'not reached'}: ${cpu}, in the first 3 s: ${first.toFixed(2)} (at most 1.2)`,
      ),
    );
  }
  say('');
  for (const show of judged) show();
}

async function freshRun(started, url, key, concurrency) {
  const { first, steady } = load(url, key, 'call', 'echo', concurrency, started.pid);
  const rssMb = rssBytes(started.pid) / 1e6;
  await started.end();
  const { perSecond, p99Ms } = steady;
  return { firstUs: first.cpuUsPerCall, steadyUs: steady.cpuUsPerCall, perSecond, p99Ms, rssMb };
}

const fifty = Object.fromEntries(
  Array.from({ length: 50 }, (_, i) => [
    `server${String(i).padStart(2, '0')}`,
    { command: 'perl', args: [file('./twenty-tools.pl')], keepAlive: '1s' },
  ]),
);

/** Starts every server once, so that its lists are known afterwards. */
async function learnFifty() {
  const first = await hostler(folder, fifty, 'fifty');
  await first.whenResting();
  await first.end();
}

/** Lists of 1,000 tools, which are answered from prepared bytes. */
async function manyServers() {
  const gateway = await hostler(folder, fifty, 'fifty');
  const listed = await gateway.post('tools/list');
  const bytes = path.join(folder, 'list.json');
  writeFileSync(bytes, listed);
  const tools = JSON.parse(listed).result.tools.length;
  if (tools !== 1_000) throw new Error(`${tools} tools are listed`);
  const constant = await listening(node, [file('./constant-http.mjs'), bytes]);
  const rates = [];
  for (let round = 0; round < rounds; round++) {
    const limit = load(constant.url, '', 'list', '', 16);
    rates.push(load(gateway.url, gateway.key, 'list', '', 16).perSecond / limit.perSecond);
  }
  const rate = median(rates);
  await constant.end();
  await gateway.end();
  say(`\n### Fifty servers of twenty tools (${listed.length} bytes of list)\n`);
  const what = 'tools/list of 1,000 tools per second, relative to a server that writes a constant';
  bar(what, rate.toFixed(2), rate >= 0.9, 'at least 0.9');
}

/** The memory of Hostler with fifty idle servers that were listed. */
async function memory() {
  const measured = [];
  for (let round = 0; round < rounds; round++) {
    const idle = await hostler(folder, fifty, 'fifty');
    await idle.post('tools/list');
    measured.push(rssBytes(idle.pid) / 1e6);
    await idle.end();
  }
  const rss = median(measured);
  say('\n### Fifty servers at rest\n');
  bar('memory with 50 idle servers, MB', rss.toFixed(1), rss <= 90, 'at most 90');
}

/** From exec to the first answer. */
async function startUp() {
  const plain = `require('http').createServer((q,s)=>s.end('{}')).listen(+process.argv[1],'127.0.0.1')`;
  const times = { node: [], hostler: [] };
  for (let round = 0; round < rounds; round++) {
    times.node.push(await timeToAnswer((port) => [node, ['-e', plain, String(port)]]));
    const gateway = await hostler(folder, fifty, 'fifty', { port: await freePort(), isTimed: true });
    times.hostler.push(gateway.firstListMs);
    await gateway.end();
  }
  const ratio = median(times.hostler) / median(times.node);
  say('\n### From exec to the first answer\n');
  say(
    `Node alone ${median(times.node).toFixed(0)} ms, Hostler with 1,000 tools ${median(times.hostler).toFixed(0)} ms.\n`,
  );
  // The ratio is lower on Node 20, because Node 20 itself takes twice as long to start.
  const most = Number(process.versions.node.split('.')[0]) >= 22 ? 2 : 3;
  const what = 'time from exec to the first tools/list, relative to Node alone';
  bar(what, ratio.toFixed(2), ratio <= most, `at most ${most}`);
}

/** kill -9 of a server under load, and of Hostler itself. */
async function deaths() {
  const { recoveryMs, startMs, failed, untyped, orphans } = await killed(folder, {
    command: node,
    args: [file('./echo-stdio.mjs')],
  });
  say('\n### kill -9 under load\n');
  const over = Math.max(...recoveryMs) - startMs;
  say(`A start of the server takes ${startMs.toFixed(0)} ms; ${failed} calls in flight failed.\n`);
  const what = 'time from kill -9 of the server to the next success, minus a start of the server, ms';
  bar(what, over.toFixed(0), over <= 150, 'at most 150');
  bar('failures without a typed outcome', untyped, untyped === 0, 'none');
  bar('processes left 2 s after kill -9 of Hostler', orphans, orphans === 0, 'none');
}

say('# The gateway, measured');
say('');
say(
  `${new Date().toISOString().slice(0, 10)}, Node ${process.version}, ${os.cpus().length} cores, load ${os.loadavg()[0].toFixed(1)} before the run,`,
);
say(
  `median of ${rounds} interleaved rounds of ${seconds} s (CPU per call: ${cpuSeconds} s after a warm-up of 8 s and 20,000 calls, new processes each round).`,
);
say(
  '60-byte echo, modern era over HTTP, load in a process of its own. Hostler has a key, a role, a budget and metrics in every CPU round.',
);
say(
  'The plain relay parses the JSON and replaces the id; it has no keys, limits, policy or supervision. "At 16" means 16 calls in',
);
say('flight. If a bar is MISSED, the benchmark fails; a goal is only reported.');
const echoStdio = { command: node, args: [file('./echo-stdio.mjs')] };
const stdioRelay = ['stdio', node, file('./echo-stdio.mjs')];
if (wanted('stdio')) await calls('Over stdio', echoStdio, stdioRelay);
if (wanted('cpu-stdio')) await cpuPerCall('Over stdio', echoStdio, stdioRelay);
if (wanted('http') || wanted('cpu-http')) {
  const echo = await listening(node, [file('./echo-http.mjs')], { END_WITH_STDIN: '1' });
  if (wanted('http')) await calls('Over HTTP', { url: echo.url }, ['http', echo.url], echo.url);
  if (wanted('cpu-http')) await cpuPerCall('Over HTTP', { url: echo.url }, ['http', echo.url]);
  await echo.end();
}
if (wanted('list') || wanted('memory') || wanted('start')) await learnFifty();
if (wanted('list')) await manyServers();
if (wanted('memory')) await memory();
if (wanted('start')) await startUp();
if (wanted('deaths')) await deaths();
rmSync(folder, { recursive: true, force: true });
process.exit(bars.every(Boolean) ? 0 : 1);
