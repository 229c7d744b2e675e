/** `hostler` without arguments, as a new user runs it: in an empty home, and in homes with clients. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Running } from './hostler-process.js';

let home: string;
beforeEach(() => {
  home = mkdtempSync(path.join(os.tmpdir(), 'hostler-home-'));
});
afterEach(() => rmSync(home, { recursive: true, force: true }));

const write = (file: string, value: unknown) => {
  mkdirSync(path.dirname(path.join(home, file)), { recursive: true });
  writeFileSync(path.join(home, file), typeof value === 'string' ? value : JSON.stringify(value));
};
const node = { command: process.execPath, args: ['a.js'] };
const web = { url: 'https://example.com/mcp' };
const lost = { command: 'no-such-command-here' };

/** Fails the run if the program starts a process or opens a connection. */
const spy = `const cp = require('node:child_process'), net = require('node:net');
for (const [object, name] of [[cp, 'spawn'], [cp, 'execFile'], [cp, 'fork'], [net.Socket.prototype, 'connect'], [net.Server.prototype, 'listen']])
  object[name] = () => { console.log('FORBIDDEN ' + name); process.exit(99); };`;

async function alone(more: Readonly<Record<string, string>> = {}, args: readonly string[] = []): Promise<string> {
  const file = path.join(home, 'spy.cjs');
  writeFileSync(file, spy);
  const before = readdirSync(home, { recursive: true }).sort();
  const env = { HOME: home, XDG_CONFIG_HOME: '', XDG_DATA_HOME: '', XDG_STATE_HOME: '', XDG_CACHE_HOME: '', ...more };
  const { code, stdout, stderr } = await new Running(args, { ...env, NODE_OPTIONS: `--require ${file}` }, home).closed;
  expect([code, stderr]).toEqual([0, '']);
  expect(readdirSync(home, { recursive: true }).sort()).toEqual(before);
  return stdout;
}

test.each<[string, Record<string, unknown>, RegExp]>([
  ['an empty home', {}, /no client has MCP servers\./],
  ['one client', { '.cursor/mcp.json': { mcpServers: { a: node } } }, /\n1 server in 1 client\n/],
  [
    'the same server in two clients',
    {
      '.cursor/mcp.json': { mcpServers: { a: node } },
      '.config/Code/User/mcp.json': { servers: { b: { type: 'stdio', ...node } } },
    },
    /\n2 servers in 2 clients, 1 of them different\n/,
  ],
  [
    'a command that does not exist, and a file that cannot be read',
    { '.claude.json': { mcpServers: { a: node, b: web, c: lost } }, '.gemini/settings.json': '{' },
    /\n3 servers in 1 client, 1 whose command does not exist\n/,
  ],
  [
    'four clients',
    {
      '.config/zed/settings.json': { theme: 'x', context_servers: { a: node } },
      '.codeium/windsurf/mcp_config.json': { mcpServers: { w: { serverUrl: 'https://example.com/mcp' } } },
      '.claude.json': { mcpServers: { web }, projects: {} },
      '.kiro/settings/mcp.json': { mcpServers: { a: node, c: lost } },
    },
    /\n5 servers in 4 clients, 3 of them different, 1 whose command does not exist\n/,
  ],
  [
    'secrets in plain text',
    {
      '.cursor/mcp.json': { mcpServers: { a: { ...node, env: { API_KEY: 'abcdef123456' } }, b: web } },
      '.config/Code/User/mcp.json': {
        servers: { c: { type: 'http', url: 'https://c.example', headers: { Authorization: `Bearer $\{input:c}` } } },
      },
    },
    /\n3 servers in 2 clients, 1 with secrets in plain text\n/,
  ],
  [
    'Hostler itself in the file of a client',
    {
      '.cursor/mcp.json': { mcpServers: { a: node, hostler: { command: 'hostler', args: ['up', '--stdio'] } } },
      '.kiro/settings/mcp.json': { mcpServers: { hostler: { command: 'npx', args: ['hostler', 'up', '--stdio'] } } },
    },
    /\n1 server in 1 client\n/,
  ],
])('AC-E12 %s: the counts are correct, and nothing is written, started or connected to', async (_name, files, said) => {
  for (const [file, value] of Object.entries(files)) write(file, value);
  const text = await alone();
  expect(text).toMatch(said);
  expect(text).toMatch(/\n {2}hostler help +list the commands\n/);
});

test('AC-E12 the next command names the client, on a line of its own if it is long', async () => {
  write('.config/zed/settings.json', { context_servers: { a: node } });
  const long = await alone();
  expect(long).toContain('\n  hostler up --config ~/.config/zed/settings.json\n      run the servers of Zed\n');
  write('.claude.json', { mcpServers: { a: node } });
  expect(await alone()).toMatch(/\n {2}hostler up --config ~\/\.claude\.json +run the servers of Claude Code\n/);
});

test('AC-E12 the next command can be pasted, even if the path has a space', async () => {
  write("the user's files/.claude.json", { mcpServers: { a: node } });
  const text = await alone({ CLAUDE_CONFIG_DIR: path.join(home, "the user's files") });
  const [, word = ''] = /\n {2}hostler up --config (~\/'.*)\n {6}run the servers of Claude Code\n/.exec(text) ?? [];
  const { stdout } = spawnSync('sh', ['-c', `printf %s ${word}`], { env: { HOME: home }, encoding: 'utf8' });
  expect(stdout).toBe(path.join(home, "the user's files/.claude.json"));
});

test('AC-E12 with a configuration hostler prints how to start it', async () => {
  write('.config/hostler/hostler.json', { mcpServers: { a: node } });
  const env = { HOME: home, XDG_CONFIG_HOME: '', XDG_DATA_HOME: '' };
  const { code, stdout } = await new Running([], env, home).closed;
  expect(code).toBe(0);
  expect(stdout).toMatch(/hostler\.json has 1 server; no Hostler is running for it\.\n\n {2}hostler up /);
});

test('AC-E12 a file that cannot be read is named, with the command that says what is wrong', async () => {
  write('.gemini/settings.json', '{');
  const text = await alone();
  expect(text).toContain('no client has MCP servers.');
  expect(text).toMatch(/\n {2}Gemini CLI +cannot be read +~\/\.gemini\/settings\.json\n/);
  expect(text).toContain(
    '\n  hostler doctor --config ~/.gemini/settings.json\n      say what is wrong with the file of Gemini CLI\n',
  );
});

test('AC-E12 with --json the same facts are one object', async () => {
  write('.cursor/mcp.json', { mcpServers: { a: node, b: web } });
  write('.gemini/settings.json', '{');
  const facts = JSON.parse(await alone({}, ['--json'])) as { next: { command: string }[] };
  expect(facts).toMatchObject({
    running: [],
    config: null,
    clients: [
      { client: 'Cursor', file: path.join(home, '.cursor/mcp.json'), servers: 2 },
      { client: 'Gemini CLI', file: path.join(home, '.gemini/settings.json'), servers: null },
    ],
  });
  expect(facts.next[0]?.command).toBe('hostler up --config ~/.cursor/mcp.json');
});
