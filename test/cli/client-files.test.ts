/**
 * The configuration files of seven clients, as the clients write them (test/fixtures/clients/), each at its usual place below an
 * empty home: `hostler up` starts all their servers without an edit.
 */
import { copyFileSync, mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { StatusRow } from '../../src/host/status.js';
import { eventually } from '../eventually.js';
import { httpFixtures, type RunningFixture } from '../fixtures/fixture-servers.js';
import { Running } from './hostler-process.js';

const fixtures = fileURLToPath(new URL('../fixtures/clients/', import.meta.url));
const home = realpathSync(mkdtempSync(path.join(os.tmpdir(), 'hostler-home-')));
const project = path.join(home, 'project');

let docs: RunningFixture;
beforeAll(async () => {
  mkdirSync(project);
  symlinkSync(fileURLToPath(new URL('../../node_modules', import.meta.url)), path.join(project, 'node_modules'));
  writeFileSync(path.join(project, '.env'), 'API_TOKEN="from an env file"\n');
  docs = await (httpFixtures.find(({ name }) => name === 'sdk2-http-both') as (typeof httpFixtures)[number]).start();
});
afterAll(async () => {
  await docs?.stop();
  rmSync(home, { recursive: true, force: true });
});

/** Client, place of its file, label and slug of each server that starts, and slug and reason of each that cannot. */
const clients = [
  [
    'claude-code',
    'project/.mcp.json',
    { memory: 'memory', docs: 'docs' },
    { linear: 'the variable LINEAR_API_KEY is not set' },
  ],
  [
    'claude-desktop',
    '.config/Claude/claude_desktop_config.json',
    {
      'Sequential Thinking': 'sequential-thinking',
      '@modelcontextprotocol/server-memory': 'modelcontextprotocol-server-memory',
    },
    {},
  ],
  ['cursor', 'project/.cursor/mcp.json', { filesystem: 'filesystem', docs: 'docs' }, {}],
  [
    'vscode',
    'project/.vscode/mcp.json',
    { everything: 'everything', docs: 'docs' },
    { github: 'is a value that only its client can ask for' },
  ],
  ['windsurf', '.codeium/windsurf/mcp_config.json', { memory: 'memory', docs: 'docs' }, {}],
  [
    'cline',
    '.cline/data/settings/cline_mcp_settings.json',
    {
      'github.com/modelcontextprotocol/servers/tree/main/src/memory':
        'github-com-modelcontextprotocol-servers-tree-main-src-memory',
      sequentialthinking: 'sequentialthinking',
    },
    { remote: undefined },
  ],
  [
    'zed',
    '.config/zed/settings.json',
    { 'sequential-thinking': 'sequential-thinking', memory: 'memory' },
    { 'mcp-server-context7': 'needs a command (stdio) or a url (HTTP)' },
  ],
] as const;

const fixtureOf = (client: string): string =>
  path.join(fixtures, ['vscode', 'zed'].includes(client) ? `${client}.jsonc` : `${client}.json`);

async function rowsOf(dataDir: string): Promise<readonly StatusRow[]> {
  const { stdout } = await new Running(['status', '--json', '--data-dir', dataDir]).closed;
  return (JSON.parse(stdout) as { servers: StatusRow[] }).servers;
}

test.concurrent.each(clients)(
  '%s: all servers of the file start',
  { timeout: 120_000 },
  async (client, place, started, disabled) => {
    const file = path.join(home, place);
    const dataDir = path.join(home, `data-${client}`);
    mkdirSync(path.dirname(file), { recursive: true });
    copyFileSync(fixtureOf(client), file);
    const env = { HOME: home, XDG_CONFIG_HOME: '', DOCS_URL: docs.url, DOCS_TOKEN: 'a-token-of-the-docs' };
    const up = new Running(['up', '--config', file, '--data-dir', dataDir, '--port=0', '--json'], env, project);
    try {
      await up.ready();
      const slugs = Object.values(started);
      // Asking for the status takes a process, so the log is read first.
      await eventually('every server is ready', () => slugs.every((slug) => up.stderr.includes(` ${slug}: starting`)));
      const rows = await eventually('every server has listed its tools', async () => {
        const now = await rowsOf(dataDir);
        return slugs.every((slug) => now.some(({ name, tools }) => name === slug && tools > 0)) && now;
      });
      const labels = rows.filter(({ state }) => state !== 'disabled').map(({ label, name }) => [label, name]);
      expect(Object.fromEntries(labels)).toEqual(started);
      for (const [slug, reason] of Object.entries(disabled)) {
        const { state, lastError } = rows.find(({ name }) => name === slug) as StatusRow;
        expect([slug, state]).toEqual([slug, 'disabled']);
        if (reason !== undefined) expect(lastError?.message).toContain(reason);
      }
      // A command accepts the label of a server.
      const [label = '', slug = ''] = Object.entries(started)[0] ?? [];
      const why = await new Running(['why', label, '--json', '--data-dir', dataDir]).closed;
      expect(JSON.parse(why.stdout)).toMatchObject({ server: slug });
      if (!label.includes('/')) return;
      const approve = await new Running(['approve', label, '--json', '--data-dir', dataDir]).closed;
      expect([approve.code, JSON.parse(approve.stdout)]).toEqual([0, expect.objectContaining({ waiting: [] })]);
    } finally {
      up.child.kill('SIGTERM');
      await up.closed;
    }
  },
);
