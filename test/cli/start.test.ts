/** `npm start`: real servers run until Ctrl-C, and nothing is left. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { eventually } from '../eventually.js';
import { isAlive } from '../is-alive.js';
import { type Ready, Running } from './hostler-process.js';

const script = fileURLToPath(new URL('../../scripts/start.mjs', import.meta.url));

test('serves four real servers, forwards options, and ends with Ctrl-C', { timeout: 60_000 }, async () => {
  const child = spawn(process.execPath, [script, '--json', '--port', '0'], { stdio: 'pipe' });
  let [stdout, stderr] = ['', ''];
  child.stdout.on('data', (chunk) => (stdout += chunk));
  child.stderr.on('data', (chunk) => (stderr += chunk));
  const closed = once(child, 'close');
  const line = await eventually('it serves', () => stdout.includes('\n') && stdout, 40_000);
  const { pid, dataDir } = JSON.parse(line) as Ready;
  const names = await eventually(
    'all servers told their tools',
    async () => {
      const status = await new Running(['status', '--json', '--data-dir', dataDir]).closed;
      const { servers } = JSON.parse(status.stdout) as { servers: { name: string; tools: number }[] };
      return servers.every(({ tools }) => tools > 0) && servers.map(({ name }) => name);
    },
    40_000,
  );
  expect(names).toEqual(['everything', 'filesystem', 'memory', 'thinking']);
  // As under npm: one key press, two signals.
  child.kill('SIGINT');
  child.kill('SIGINT');
  expect([(await closed)[0], stderr.includes('at once')]).toEqual([0, true]);
  expect([isAlive(pid), existsSync(path.dirname(dataDir))]).toEqual([false, false]);
});
