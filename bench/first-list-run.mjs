/** One run of the benchmark first-list: lists N new servers, and prints the time since this process started. */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const [contestant, kind, count] = process.argv.slice(2);
const file = (name) => fileURLToPath(new URL(name, import.meta.url));
const server = kind === 'node' ? [process.execPath, [file('./echo-stdio.mjs')]] : ['perl', [file('./twenty-tools.pl')]];
const names = Array.from({ length: Number(count) }, (_, i) => `s${i}`);

/** One server of the simplest relay, which starts all servers at once: a handshake and one list. */
function listOne() {
  return new Promise((resolve) => {
    const child = spawn(...server, { stdio: ['pipe', 'pipe', 'ignore'] });
    const send = (message) => child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
    createInterface({ input: child.stdout }).on('line', (line) => {
      const { id } = JSON.parse(line);
      if (id === 2) return resolve(child);
      send({ method: 'notifications/initialized' });
      send({ id: 2, method: 'tools/list' });
    });
    const clientInfo = { name: 'bench', version: '1' };
    send({ id: 1, method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo } });
  });
}

if (contestant === 'relay') {
  const children = await Promise.all(names.map(listOne));
  console.log(Math.round(performance.now()));
  for (const child of children) child.kill();
} else {
  const { createHost } = await import('../dist/index.js');
  const stateDir = mkdtempSync(path.join(os.tmpdir(), 'hostler-first-'));
  const entry = { command: server[0], args: server[1] };
  const mcpServers = Object.fromEntries(names.map((name) => [name, entry]));
  const alive = setInterval(() => {}, 1_000);
  const host = await createHost({ mcpServers }, { learnAtBoot: true, stateDir });
  await host.whenAllListed();
  console.log(Math.round(performance.now()));
  if (names.some((name) => !host.known(name)?.lists.has('tools/list'))) process.exitCode = 1;
  clearInterval(alive);
  await host.close();
  rmSync(stateDir, { recursive: true, force: true });
}
