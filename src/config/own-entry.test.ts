import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { hostname, networkInterfaces, tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { fillConfig, normaliseText, readConfigFile } from './config-file.js';
import { configFaults, parseHostConfig } from './host-config.js';
import { refuseOwnUrls } from './own-entry.js';

const folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'hostler-own-')));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const file = path.join(folder, 'mcp.json');
writeFileSync(file, '{}');
const link = path.join(folder, 'link.json');
symlinkSync(file, link);
mkdirSync(path.join(folder, 'dist/cli'), { recursive: true });
const env = { XDG_CONFIG_HOME: path.join(folder, 'config') };
mkdirSync(path.join(folder, 'config/hostler'), { recursive: true });
symlinkSync(file, path.join(folder, 'config/hostler/hostler.json'));
const main = path.join(folder, 'dist/cli/main.cjs');

const unusable = (config: unknown) => [...parseHostConfig(config, () => {}, true).unusable.keys()];
const refused = (mcpServers: Readonly<Record<string, unknown>>) =>
  unusable(fillConfig(normaliseText(JSON.stringify({ mcpServers }), file), { env, folder }).config);

const up = ['up', '--stdio'];
describe('the search for entries that are Hostler itself', () => {
  test.each<[string, unknown]>([
    ['by name', { command: 'hostler', args: up }],
    ['by path', { command: '/usr/local/bin/hostler', args: [...up, '--config', file] }],
    ['by a link to the file', { command: 'hostler', args: [...up, `--config=${link}`] }],
    ['by a relative path', { command: 'hostler', args: ['up', '--config', 'mcp.json', '--stdio'] }],
    ['below its cwd', { command: 'hostler', args: [...up, '--config', '../mcp.json'], cwd: path.join(folder, 'dist') }],
    ['node and the program', { command: process.execPath, args: [main, ...up, '--data-dir', '/d', '--config', file] }],
    ['node with an option', { command: 'node', args: ['--no-warnings', main, ...up] }],
    ['the running program', { command: 'node', args: [realpathSync(process.argv[1] ?? ''), ...up] }],
    ['npx', { command: 'npx', args: ['hostler', ...up] }],
    ['npx -y', { command: 'npx', args: ['-y', 'hostler@latest', ...up] }],
    ['npm exec', { command: 'npm', args: ['exec', 'hostler', '--', ...up] }],
    ['one text', { command: `npx -y hostler up --stdio --config ${file}` }],
    ['a list', { type: 'local', command: ['hostler', ...up] }],
    ['with a variable that is not set', { command: 'hostler', args: up, env: { KEY: `\${env:NOT_SET}` } }],
    ['with a placeholder', { command: 'hostler', args: [...up, '--config', `\${workspaceFolder}/mcp.json`] }],
  ])('refuses an entry: %s', (_how, entry) => {
    expect(refused({ other: { command: 'node' }, Hostler: entry })).toEqual(['hostler']);
  });

  test.each<[string, unknown]>([
    ['another configuration', { command: 'hostler', args: [...up, '--config', '/other.json'] }],
    ['the file of another user', { command: 'hostler', args: up, env: { XDG_CONFIG_HOME: '/other' } }],
    ['another machine', { command: 'ssh', args: ['box', 'hostler', ...up] }],
    ['a container', { command: 'docker', args: ['exec', '-i', 'box', 'hostler', ...up] }],
    ['a worker', { command: 'hostler', args: ['worker', '--broker', 'wss://box'] }],
    ['another command', { command: 'node', args: ['server.js', 'hostler'] }],
    ['another program', { command: 'my-hostler', args: up }],
  ])('accepts an entry: %s', (_what, entry) => {
    expect(refused({ other: entry })).toEqual([]);
  });

  test('refuses an entry without --config only in the file of the user', () => {
    const own = path.join(folder, 'project.json');
    const text = JSON.stringify({ mcpServers: { a: { command: 'hostler', args: up } } });
    const read = (given: Readonly<Record<string, string>>) =>
      unusable(fillConfig(normaliseText(text, own), { env: given, folder }).config);
    expect([read(env), read({})]).toEqual([[], []]);
  });

  test('reports the entry in a remark with its place in the file, not as a fault', () => {
    writeFileSync(file, `{"mcpServers": {\n  "Hostler": {"command": "hostler", "args": ["up", "--stdio"]}}}`);
    const { config, problems, locate } = readConfigFile(file, env);
    expect(problems).toEqual([]);
    const [fault, ...others] = configFaults(config, true).map(locate);
    expect([fault?.message, fault?.details.reason, others]).toEqual([
      `${file}:2:3: mcpServers.Hostler: is Hostler itself, which would list its own tools again; it is left out`,
      'note',
      [],
    ]);
  });
});

test('an entry with the address of this Hostler is refused', () => {
  const own = (url: string, at: string | undefined, host = '127.0.0.1') =>
    unusable(refuseOwnUrls({ mcpServers: { a: { url } } }, at, host));
  const at = 'http://127.0.0.1:8383/mcp';
  for (const url of [at, 'http://localhost:8383/mcp/memory', 'http://[::1]:8383/mcp/@all', `${at}?a=b`])
    expect(own(url, at), url).toEqual(['a']);
  for (const url of ['http://127.0.0.1:8384/mcp', 'https://127.0.0.1:8383/mcp', 'http://example.com:8383/mcp'])
    expect(own(url, at), url).toEqual([]);
  expect(own(at, undefined)).toEqual([]);
  const addresses = Object.values(networkInterfaces()).flatMap((all) => all ?? []);
  const names = addresses.map(({ address, family }) => (family === 'IPv6' ? `[${address}]` : address));
  for (const everywhere of ['0.0.0.0', '::'])
    for (const name of ['localhost', '0.0.0.0', '[::]', hostname(), ...names])
      expect(own(`http://${name}:8383/mcp`, at, everywhere), name).toEqual(['a']);
  expect(own('http://example.com:8383/mcp', at, '0.0.0.0')).toEqual([]);
  expect(own(`http://${hostname()}:8383/mcp`, at)).toEqual([]);
});
