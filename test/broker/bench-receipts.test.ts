/** The benchmark of the broker uses parts that are not public; this test notices when they change without it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, expect, test } from 'vitest';
import { newKey } from '../../src/config/keys.js';

const script = fileURLToPath(new URL('../../bench/broker-run.mjs', import.meta.url));
const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-bench-'));
const children: ChildProcess[] = [];
afterEach(async () => {
  for (const child of children.splice(0)) {
    child.stdin?.end();
    if (child.exitCode === null) await once(child, 'exit');
  }
  rmSync(folder, { recursive: true, force: true });
});

/** Starts one process of the benchmark and returns the first line that it prints. */
async function firstLine(...args: string[]): Promise<Record<string, unknown>> {
  const child = spawn(process.execPath, [script, ...args], { stdio: ['pipe', 'pipe', 'pipe'] });
  children.push(child);
  let errors = '';
  child.stderr.on('data', (chunk) => (errors += chunk));
  const [line] = await Promise.race([
    once(child.stdout, 'data'),
    once(child, 'exit').then(() => Promise.reject(new Error(errors))),
  ]);
  return JSON.parse(String(line)) as Record<string, unknown>;
}

test('the host of the benchmark gives receipts to the clients of the benchmark', async () => {
  const keys = [newKey(), newKey()];
  const entries = keys.map((key, at) => {
    const hash = `sha256:${createHash('sha256').update(key).digest('hex')}`;
    return [`w${at}`, { hash, worker: `w${at}`, role: 'all' }] as const;
  });
  const file = path.join(folder, 'keys.json');
  writeFileSync(file, JSON.stringify(Object.fromEntries(entries)), { mode: 0o600 });
  const { url } = await firstLine('receipts-host', '0', '0', file, path.join(folder, 'receipts'));
  const { perSecond } = await firstLine('receipts', '1', '0.1', String(url), keys.join(','));
  expect(perSecond).toBeGreaterThan(0);
});
