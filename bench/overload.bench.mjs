/**
 * A gateway with more calls in flight on one server than it runs at once: successes per second and the gateway's CPU at 64, 256,
 * 1,024 and 4,000 in flight. Past 64 running and 1,024 queued calls a call is refused, and the client sends the next one at once.
 * Over stdio, where one client can have all of them in flight. Options: --seconds per point, --only 64,4000.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import { file, say, seconds, wanted } from './report.mjs';

const warmUpMs = 4_000;
const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-bench-'));
const dataDir = path.join(folder, 'data');
const config = path.join(folder, 'hostler.json');
mkdirSync(dataDir, { mode: 0o700 });
const echo = { command: process.execPath, args: [file('./echo-stdio.mjs')] };
writeFileSync(config, JSON.stringify({ mcpServers: { echo } }));
const argv = [file('../dist/cli/main.cjs'), 'up', '--stdio', '--config', config, '--data-dir', dataDir];
const gateway = spawn(process.execPath, argv, { stdio: ['pipe', 'pipe', 'ignore'] });

const version = '2026-07-28';
const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"${version}","io.modelcontextprotocol/clientCapabilities":{}}`;
let call = '';
let lastId = 0;
let ok = 0;
let refused = 0;
let inFlightMax = 0;
let inFlight = 0;

/** A line is a success or a refusal by its text; parsing would cost the client more than the gateway. */
let rest = '';
let onFirst;
gateway.stdout.setEncoding('utf8');
gateway.stdout.on('data', (chunk) => {
  const lines = (rest + chunk).split('\n');
  rest = lines.pop();
  for (const line of lines) {
    if (line.includes('"content"')) ok++;
    else if (line.includes('-31015')) refused++;
    else if (onFirst) return onFirst(JSON.parse(line));
    else throw new Error(line);
    inFlight--;
  }
  fill();
});

function fill() {
  let text = '';
  for (; inFlight < inFlightMax; inFlight++) text += `{"jsonrpc":"2.0","id":${++lastId},${call}\n`;
  if (text !== '') gateway.stdin.write(text);
}

/** User and system time, from clock ticks of 10 ms. */
function cpuUs() {
  const fields = readFileSync(`/proc/${gateway.pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) * 10_000;
}

const first = new Promise((resolve) => {
  onFirst = resolve;
});
gateway.stdin.write(`{"jsonrpc":"2.0","id":0,"method":"tools/list","params":{${meta}}}\n`);
const { name } = (await first).result.tools[0];
onFirst = undefined;
call = `"method":"tools/call","params":{"name":"${name}","arguments":{"text":"${'x'.repeat(60)}"},${meta}}}`;

inFlightMax = 64;
fill();
await sleep(warmUpMs);
say('| in flight | successes/s | refusals/s | CPU us per answer | CPU us per success |');
say('| ---: | ---: | ---: | ---: | ---: |');
for (const point of [64, 256, 1_024, 4_000]) {
  if (!wanted(String(point))) continue;
  inFlightMax = point;
  fill();
  await sleep(1_000);
  ok = refused = 0;
  const beforeUs = cpuUs();
  await sleep(seconds * 1_000);
  const usedUs = cpuUs() - beforeUs;
  const cells = [ok / seconds, refused / seconds, usedUs / (ok + refused), usedUs / ok];
  say(`| ${point} | ${cells.map((cell) => Math.round(cell)).join(' | ')} |`);
}
inFlightMax = 0;
gateway.stdin.end();
await once(gateway, 'exit');
rmSync(folder, { recursive: true, force: true });
