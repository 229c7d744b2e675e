/**
 * Five packages from npm, each in an older and a newer version: how many tools an upgrade blocks, with and without the rule that
 * wording alone does not block. Needs a registry. docs/reports/real-servers.md has the figures.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { createHost } from '../../src/host/host.js';
import { memoryPinStore, type PinStatus } from '../../src/policy/pin-records.js';
import { type PinItem, Pins } from '../../src/policy/pins.js';

const upgrades: readonly (readonly [name: string, from: string, to: string, args: readonly string[]])[] = [
  ['@modelcontextprotocol/server-filesystem', '2025.11.25', '2026.1.14', [os.tmpdir()]],
  ['@playwright/mcp', '0.0.78', '0.0.83', []],
  ['tavily-mcp', '0.2.15', '0.2.22', []],
  ['chrome-devtools-mcp', '1.7.0', '1.11.0', []],
  ['mongodb-mcp-server', '2.1.1', '3.0.4', []],
];
const root = fileURLToPath(new URL('../real/tools/node_modules/.upgrades/', import.meta.url));
const options = [
  '--ignore-scripts',
  '--no-audit',
  '--no-fund',
  '--no-package-lock',
  '--omit=dev',
  '--legacy-peer-deps',
];

function entryOf(name: string, version: string, args: readonly string[]) {
  const folder = path.join(root, `${name.replaceAll('/', '+')}@${version}`);
  if (!existsSync(path.join(folder, 'done'))) {
    mkdirSync(folder, { recursive: true });
    writeFileSync(path.join(folder, 'package.json'), '{"private":true}');
    execFileSync('npm', ['install', ...options, `${name}@${version}`], { cwd: folder, stdio: 'ignore' });
    writeFileSync(path.join(folder, 'done'), '');
  }
  const base = path.join(folder, 'node_modules', name);
  const { bin } = JSON.parse(readFileSync(path.join(base, 'package.json'), 'utf8')) as {
    bin: Record<string, string> | string;
  };
  const file = typeof bin === 'string' ? bin : (Object.values(bin)[0] as string);
  return { command: process.execPath, args: [path.join(base, file), ...args], env: { TAVILY_API_KEY: 'tvly-none' } };
}

async function toolsOf(entry: object): Promise<PinItem[]> {
  const home = mkdtempSync(path.join(os.tmpdir(), 'hostler-upgrade-'));
  const host = await createHost({ mcpServers: { s: { ...entry, cwd: home } } });
  try {
    await host.start('s');
    return (await host.tools('s', { deadlineMs: 120_000 })).map(({ name, raw }) => ({ key: name, raw }));
  } finally {
    await host.close();
    rmSync(home, { recursive: true, force: true });
  }
}

test('wording alone blocks no tool of an upgraded server', { timeout: 900_000 }, async () => {
  const totals = { tools: 0, before: 0, after: 0 };
  for (const [name, from, to, args] of upgrades) {
    const old = await toolsOf(entryOf(name, from, args));
    const now = await toolsOf(entryOf(name, to, args));
    const pins = new Pins({ store: memoryPinStore() });
    pins.observe('s', old, new Date(1));
    const { tools } = pins.observe('s', now, new Date(2));
    const kept = old.filter(({ key }) => now.some((each) => each.key === key)).map(({ key }) => key);
    const count = (...statuses: PinStatus[]) =>
      kept.filter((key) => statuses.includes(tools.get(key) as PinStatus)).length;
    const [after, before] = [count('changed'), count('changed', 'reworded')];
    totals.tools += kept.length;
    totals.before += before;
    totals.after += after;
    console.log(`| ${name} | ${from} | ${to} | ${kept.length} | ${before} | ${after} |`);
  }
  console.log(`| all | | | ${totals.tools} | ${totals.before} | ${totals.after} |`);
  expect(totals.after).toBeLessThan(totals.before);
});
