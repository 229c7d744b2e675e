/** NATS is configured, but its packages are not installed: the error has the command that installs them. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { eventually } from '../eventually.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
let folder: string;

beforeAll(() => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-missing-'));
  const packages = path.join(folder, 'node_modules');
  mkdirSync(packages);
  for (const name of readdirSync(path.join(root, 'node_modules')))
    if (name !== '@nats-io') symlinkSync(path.join(root, 'node_modules', name), path.join(packages, name));
  // A package without entry points hides the real one, which a folder above may have.
  mkdirSync(path.join(packages, '@nats-io/transport-node'), { recursive: true });
  writeFileSync(path.join(packages, '@nats-io/transport-node/package.json'), '{"exports": {}}');
  cpSync(path.join(root, 'dist'), path.join(folder, 'dist'), { recursive: true });
  cpSync(path.join(root, 'package.json'), path.join(folder, 'package.json'));
  writeFileSync(path.join(folder, 'ann.key'), `SU${'A'.repeat(56)}`, { mode: 0o600 });
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** The output before the end, or of the first seconds. */
async function saidBy(...args: string[]): Promise<string> {
  const child = spawn(process.execPath, ['dist/cli/main.js', ...args], { cwd: folder });
  let said = '';
  child.stderr.on('data', (chunk) => (said += chunk));
  await eventually('a hint', () => child.exitCode !== null || said.includes('npm install'));
  child.stdin.end();
  if (child.exitCode === null) await once(child, 'exit');
  return said;
}

test.each([
  ['worker', ['worker', '--broker', 'nats://127.0.0.1:1/ann', '--key-file', 'ann.key']],
  ['key', ['key', 'add', 'ann', '--worker', 'ann', '--no-role', '--nats', '--config', 'hostler.json']],
])('hostler %s names the command that installs the packages of NATS', async (_name, args) => {
  writeFileSync(path.join(folder, 'hostler.json'), JSON.stringify({ mcpServers: {}, unlistedRole: 'allow' }));
  expect(await saidBy(...args)).toContain('npm install @nats-io/transport-node@3 @nats-io/jetstream@3');
});
