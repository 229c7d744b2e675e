/** The user pages are correct: the environment of servers, the files of clients, the install command. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { clientFiles } from '../../src/cli/config/client-files.js';
import { BASELINE } from '../../src/transports/environment.js';

const read = (name: string): string => readFileSync(new URL(`../../${name}`, import.meta.url), 'utf8');
const manifest = JSON.parse(read('package.json')) as { version: string; files: string[]; name: string };

test('docs/servers.md lists the variables that a server gets, and no others', () => {
  const rows = read('docs/servers.md').match(/^\| `.*\|$/gm) ?? [];
  const names = rows.flatMap((row) => [...row.matchAll(/`([A-Za-z_*]+)`/g)].map(([, name = '']) => name.toUpperCase()));
  const given = [...BASELINE].map((name) => name.toUpperCase());
  expect([...new Set(names)].sort()).toEqual([...new Set([...given, 'XDG_*', 'HOSTLER_RUN'])].sort());
});

test('docs/clients.md names the files that `hostler` without arguments looks for', () => {
  const page = read('docs/clients.md');
  const home = clientFiles({ HOME: '/srv/ann' }, 'linux').filter(({ client }) =>
    /Cursor|Windsurf|Zed|Cline/.test(client),
  );
  expect(home).toHaveLength(4);
  for (const { file } of home) expect(page).toContain(`\`${file.replace('/srv/ann', '~')}\``);
});

test('docs/getting-started.md shows what hostler prints for two clients', () => {
  const home = mkdtempSync(path.join(os.tmpdir(), 'hostler-home-'));
  try {
    const node = { command: process.execPath, args: ['a.js'] };
    const put = (file: string, mcpServers: object) => {
      mkdirSync(path.dirname(path.join(home, file)), { recursive: true });
      writeFileSync(path.join(home, file), JSON.stringify({ mcpServers }));
    };
    put('.claude.json', { memory: node });
    put('.cursor/mcp.json', { memory: node, other: { command: process.execPath } });
    const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));
    const { stdout } = spawnSync(process.execPath, [main], { cwd: home, env: { HOME: home }, encoding: 'utf8' });
    expect(read('docs/getting-started.md')).toContain(`$ hostler\n${stdout}\`\`\``);
  } finally {
    rmSync(home, { recursive: true });
  }
});

test('hostler help clients prints an entry with absolute paths, which docs/clients.md shows', () => {
  const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));
  const env = { HOME: '/abs/home' };
  const { stdout } = spawnSync(process.execPath, [main, 'help', 'clients'], { env, encoding: 'utf8' });
  const entry = JSON.parse(/^\{[\s\S]*^\}/m.exec(stdout)?.[0] ?? '');
  const args = [main, 'up', '--stdio', '--config', '/abs/home/.config/hostler/hostler.json'];
  expect(entry).toEqual({ mcpServers: { hostler: { command: process.execPath, args } } });
  const shown = stdout.replace(process.execPath, '/abs/node').replace(main, '/abs/dist/cli/main.cjs');
  expect(shown).toContain(/^\$ hostler help clients\n([\s\S]*?)```/m.exec(read('docs/clients.md'))?.[1] ?? 'not shown');
  expect(stdout.split('\n').length).toBeLessThanOrEqual(24);
});

test('no document runs or installs a package called hostler, which is not on npm', () => {
  const folder = new URL('../../docs/', import.meta.url);
  const pages = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.md'));
  const all = ['README.md', 'CONTRIBUTING.md', 'ARCHITECTURE.md', ...pages.map((name) => `docs/${name}`)];
  expect(all.length).toBeGreaterThan(20);
  const foreign =
    /\b(?:npx|npm (?:install|i|exec)|bunx|pnpm dlx)(?: -\S+)* hostler(?![\w./-])|"npx", "args": \["hostler"/;
  expect(all.filter((name) => foreign.test(read(name)))).toEqual([]);
});

test('the install command names the file that npm pack makes, and the package has the documents', () => {
  const file = `./${manifest.name}-${manifest.version}.tgz`;
  for (const page of ['README.md', 'docs/getting-started.md'])
    expect(read(page)).toContain(`npm install --global ${file}`);
  expect(manifest.files).toContain('docs');
});
