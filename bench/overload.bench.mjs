/**
 * Measures overload: successes per second and CPU with 64, 256, 1,024 and 4,000 calls in flight on one server, through a gateway
 * over stdio, through a gateway over HTTP, and in-process. Beyond 64 running and 1,024 queued calls a call is refused, and the
 * client sends the next one at once. The limit compares 4,000 with 1,024 in flight, in interleaved rounds.
 * Options: --seconds per point, --rounds, --only stdio,http,host.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import { createHost } from '../dist/index.js';
import { headersOf, hostler, meta } from './gateway-run.mjs';
import { file, median, rounds, say, seconds, wanted } from './report.mjs';

const warmUpMs = 4_000;
const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-bench-'));
const echo = { command: process.execPath, args: [file('./echo-stdio.mjs')] };
const text = 'x'.repeat(60);
const counts = { ok: 0, refused: 0 };
/** Tells success from refusal by a text search: parsing would cost the client more than the gateway. */
function count(answer) {
  if (answer.includes('"content":[{"type":"text","text":"xxx')) counts.ok++;
  else if (answer.includes('overloaded') || answer.includes('-31015')) counts.refused++;
  else throw new Error(answer);
}

/**
 * Each function starts a host or gateway, then keeps `n` calls in flight. It passes the number of new
 * answers to `answered`.
 */
const ways = {
  async stdio(answered) {
    const dataDir = path.join(folder, 'stdio');
    const config = path.join(folder, 'stdio.json');
    mkdirSync(dataDir, { mode: 0o700 });
    writeFileSync(config, JSON.stringify({ mcpServers: { echo } }));
    const argv = [file('../dist/cli/main.cjs'), 'up', '--stdio', '--config', config, '--data-dir', dataDir];
    const child = spawn(process.execPath, argv, { stdio: ['pipe', 'pipe', 'ignore'] });
    const params = (members) => JSON.stringify({ ...members, _meta: meta });
    let rest = '';
    let lastId = 0;
    let onFirst;
    child.stdout.setEncoding('utf8');
    child.stdout.on('data', (chunk) => {
      const lines = (rest + chunk).split('\n');
      rest = lines.pop();
      if (onFirst) return onFirst(JSON.parse(lines[0]));
      for (const line of lines) count(line);
      answered(lines.length);
    });
    const listed = new Promise((resolve) => {
      onFirst = resolve;
    });
    child.stdin.write(`{"jsonrpc":"2.0","id":0,"method":"tools/list","params":${params({})}}\n`);
    const { name } = (await listed).result.tools[0];
    onFirst = undefined;
    const call = `"method":"tools/call","params":${params({ name, arguments: { text } })}}\n`;
    return {
      pid: child.pid,
      send(n) {
        let sent = '';
        for (let i = 0; i < n; i++) sent += `{"jsonrpc":"2.0","id":${++lastId},${call}`;
        child.stdin.write(sent);
      },
      async end() {
        child.stdin.end();
        await once(child, 'exit');
      },
    };
  },
  async http(answered) {
    const gateway = await hostler(folder, { echo }, 'http');
    const { port, pathname } = new URL(`${gateway.url}/echo`);
    const params = JSON.stringify({ name: 'echo', arguments: { text }, _meta: meta });
    const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":${params}}`;
    const headers = { host: `127.0.0.1:${port}`, ...headersOf(gateway.key, 'tools/call', 'echo') };
    const lines = Object.entries({ ...headers, 'content-length': body.length }).map(
      ([name, value]) => `${name}: ${value}`,
    );
    const request = `POST ${pathname} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n${body}`;
    // One key may have 3,072 connections, so each connection is used for several requests.
    const idle = [];
    for (let i = 0; i < 1_000; i++) {
      const socket = net.connect(Number(port), '127.0.0.1');
      let rest = '';
      socket.setEncoding('latin1').on('data', (chunk) => {
        rest += chunk;
        let answers = 0;
        for (;;) {
          const body = rest.indexOf('\r\n\r\n') + 4;
          const end = body + Number(/content-length: (\d+)/i.exec(rest.slice(0, body))?.[1]);
          if (body < 4 || !(rest.length >= end)) break;
          count(rest.slice(0, end));
          rest = rest.slice(end);
          idle.push(socket);
          answers++;
        }
        if (answers > 0) answered(answers);
      });
      idle.push(socket);
    }
    idle.push(...idle, ...idle, ...idle);
    return {
      pid: gateway.pid,
      send(n) {
        for (let i = 0; i < n; i++) idle.shift().write(request);
      },
      end: () => gateway.end(),
    };
  },
  async host(answered) {
    const host = await createHost({ mcpServers: { echo } }, { stateDir: path.join(folder, 'host') });
    const args = JSON.stringify({ text });
    const one = () =>
      host
        .call('echo', 'echo', args)
        .then(
          ({ bytes }) => count(bytes.toString('latin1')),
          ({ code }) => count(code),
        )
        .then(() => answered(1));
    return {
      pid: process.pid,
      send(n) {
        for (let i = 0; i < n; i++) void one();
      },
      end: () => host.close(),
    };
  },
};

/** User and system time, from clock ticks of 10 ms. */
function cpuUs(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) * 10_000;
}

async function measure(name) {
  let inFlight = 0;
  let inFlightMax = 64;
  const fill = () => {
    const missing = inFlightMax - inFlight;
    if (missing <= 0) return;
    inFlight += missing;
    way.send(missing);
  };
  const way = await ways[name]((answers) => {
    inFlight -= answers;
    fill();
  });
  fill();
  await sleep(warmUpMs);
  const runs = {};
  const point = async (calls) => {
    inFlightMax = calls;
    fill();
    await sleep(1_000);
    counts.ok = counts.refused = 0;
    const beforeUs = cpuUs(way.pid);
    const startedMs = performance.now();
    await sleep(seconds * 1_000);
    const tookS = (performance.now() - startedMs) / 1_000;
    const { ok, refused } = counts;
    runs[calls] ??= [];
    runs[calls].push({ ok: ok / tookS, refused: refused / tookS, cpuUs: (cpuUs(way.pid) - beforeUs) / ok });
  };
  await point(64);
  await point(256);
  for (let round = 0; round < rounds; round++) for (const calls of [1_024, 4_000]) await point(calls);
  inFlightMax = 0;
  while (inFlight > 0) await sleep(10);
  await way.end();
  const middle = (calls, key) => median(runs[calls].map((run) => run[key]));
  for (const calls of Object.keys(runs)) {
    const cells = ['ok', 'refused', 'cpuUs'].map((key) => Math.round(middle(calls, key)));
    say(`| ${name} | ${calls} | ${cells.join(' | ')} |`);
  }
  return median(runs[4_000].map(({ ok }, round) => ok / runs[1_024][round].ok));
}

say('| way | in flight | successes/s | refusals/s | CPU us per success |');
say('| --- | ---: | ---: | ---: | ---: |');
const ratios = {};
for (const name of Object.keys(ways)) if (wanted(name)) ratios[name] = await measure(name);
say('');
for (const [name, ratio] of Object.entries(ratios))
  say(
    `- ${ratio >= 0.7 ? 'holds' : 'MISSED'}: ${name}, successes/s at 4,000 in flight, relative to 1,024: ${ratio.toFixed(2)} (at least 0.7)`,
  );
rmSync(folder, { recursive: true, force: true });
process.exit(Object.values(ratios).every((ratio) => ratio >= 0.7) ? 0 : 1);
