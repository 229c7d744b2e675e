/**
 * `hostler probe` as a person or a script runs it: its output, its exit code, and that no process remains.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, test } from 'vitest';
import { eventually } from '../eventually.js';
import { httpFixtures, stdioFixtures } from '../fixtures/fixture-servers.js';
import { isAlive } from '../is-alive.js';

const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));
const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-cli-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function start(...args: string[]): ChildProcess {
  const env = { ...process.env, HOSTLER_DATA_DIR: folder, SECRET_OF_OURS: 'hunter2-hunter2' };
  return spawn(process.execPath, [main, ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] });
}

async function hostler(...args: string[]) {
  const child = start(...args);
  let [stdout, stderr] = ['', ''];
  child.stdout?.on('data', (chunk) => (stdout += chunk));
  child.stderr?.on('data', (chunk) => (stderr += chunk));
  const [code] = (await once(child, 'close')) as [number];
  return { code, stdout, stderr };
}

const fixture = (name: string) => {
  const found = stdioFixtures.find((candidate) => candidate.name === name);
  if (!found) throw new Error(name);
  const env = Object.entries(found.env).map(([key, value]) => `--env=${key}=${value}`);
  return [...env, '--', found.command, ...found.args];
};

describe('a server over stdio', () => {
  test('is described for a person', async () => {
    const { code, stdout, stderr } = await hostler('probe', ...fixture('sdk2-stdio-modern'));
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(
      /^server {2}sdk2-stdio\.mjs \(hostler-fixture 1\.0\.0\)\nspeaks {2}2026-07-28, modern era, over stdio\nready {3}in \d+ ms\n/,
    );
    expect(stdout).toMatch(/\ntools {3}12, [\d.]+ kB\n {8}echo +\d+ B\n/);
    expect(stdout).toMatch(/\nalso {4}2 resources, 1 templates, 1 prompts\nstopped in \d+ ms, exit 0, nothing left\n$/);
  });

  test('is described for a script, in one object whose keys are an interface', async () => {
    const { code, stdout } = await hostler('probe', '--json', ...fixture('sdk1-stdio'));
    const report = JSON.parse(stdout) as Record<string, unknown>;
    expect(code).toBe(0);
    expect(Object.keys(report)).toEqual([
      ...['server', 'transport', 'era', 'version', 'serverInfo', 'capabilities', 'instructions', 'startMs', 'tools'],
      ...['droppedTools', 'resources', 'resourceTemplates', 'prompts', 'failures', 'junkLines', 'stopMs', 'stop', 'v'],
    ]);
    expect(report).toMatchObject({
      transport: 'stdio',
      era: 'legacy',
      version: '2025-11-25',
      stop: { left: 0, escaped: 0, exitCode: 0 },
    });
  });
});

test.each(httpFixtures.map(({ name }) => name))('%s is reached over HTTP', async (name) => {
  const server = httpFixtures.find((candidate) => candidate.name === name);
  const running = await server?.start();
  try {
    const { code, stdout } = await hostler('probe', '--json', String(running?.url));
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({
      transport: server?.transport,
      era: server?.era,
      version: server?.version,
    });
  } finally {
    await running?.stop();
  }
});

describe('a failure is one line with a hint, and has the right exit code', () => {
  test.each([
    ['nothing to probe', ['probe'], 2, 'usage: hostler probe'],
    ['an unknown command', ['prob'], 2, 'did you mean probe? hostler --help'],
    ['E12 a mistyped option', ['probe', '--sanbox', 'standard', '--', 'true'], 2, 'did you mean --sandbox?'],
    ['E12 an option without effect', ['probe', '--sandbox', 'standard', 'http://127.0.0.1:9'], 2, '--sandbox is for'],
    ['a bad duration', ['probe', '--timeout', 'soon', '--', 'true'], 2, '250ms, 30s, 5m, 2h'],
    ['a bad URL', ['probe', 'ftp://example.com'], 2, 'http or https'],
    ['a bad --header', ['probe', '--header', 'NAME', 'http://127.0.0.1:9'], 2, "has no ':'"],
    ['a bad sandbox', ['probe', '--sandbox', 'none', '--', 'true'], 2, 'sandbox'],
    ['a missing command', ['probe', '--', 'no-such-command-anywhere'], 1, 'connect_failed'],
    ['a missing folder', ['probe', '--cwd', '/no/such/folder', '--', 'true'], 1, '/no/such/folder'],
    ['a server that exits', ['probe', '--', 'sh', '-c', 'echo broken >&2; exit 3'], 1, 'exited with code 3'],
    ['a server that is no MCP server', ['probe', '--timeout', '1s', '--', 'cat'], 1, 'answered initialize with error'],
    ['a variable that is not set', ['probe', '--env', 'NO_SUCH_VARIABLE', '--', 'true'], 2, 'not set'],
    ['a server that never answers', ['probe', '--timeout', '500ms', '--', 'sleep', '60'], 1, 'within 500ms'],
    ['a port without a listener', ['probe', 'http://127.0.0.1:9/mcp'], 1, 'ECONNREFUSED'],
  ])('%s', async (_what, args, code, words) => {
    const result = await hostler(...args);
    expect(result.code).toBe(code);
    expect(result.stdout + result.stderr).toContain(words);
    expect(result.stderr).not.toMatch(/\n\s+at /);
  });

  test('a server can neither write to the terminal of the user nor read the environment of Hostler', async () => {
    const script = 'printf "\\033[31m$SECRET_OF_OURS\\033]0;title\\007 token=abcdefgh12345678" >&2; exit 1';
    const { stderr } = await hostler('probe', '--', 'sh', '-c', script);
    expect(stderr).toContain('\\u{1b}[31m');
    expect(stderr).not.toMatch(/[\u001b\u0007]/);
    expect(stderr).not.toContain('hunter2');
    expect(stderr).not.toContain('abcdefgh12345678');
  });
});

test('--env NAME passes this variable on, and no other', async () => {
  const script = 'echo "$SECRET_OF_OURS,$HOSTLER_DATA_DIR" >&2; exit 1';
  const { stderr } = await hostler('probe', '--env', 'SECRET_OF_OURS', '--', 'sh', '-c', script);
  expect(stderr).toContain('[REDACTED],');
});

test('--json escapes control characters in texts of a server, and parses to the same texts', async () => {
  const name = 'x\u009b31m\u202e\u200b\u{e0041}\u3164';
  const answer = (id: number, result: unknown) => JSON.stringify({ jsonrpc: '2.0', id, result });
  const hello = { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name, version: '1' } };
  const script = `
    const say = (line) => process.stdout.write(line + '\\n');
    require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
      const { id, method } = JSON.parse(line);
      if (method === 'initialize') say(${JSON.stringify(answer(0, hello))}.replace('"id":0', '"id":' + id));
      else if (method === 'tools/list') say(JSON.stringify({ jsonrpc: '2.0', id, error: { code: -32603, message: 'no\\nhostler: fine [ok]' } }));
      else if (id !== undefined) say(JSON.stringify({ jsonrpc: '2.0', id, error: { code: -32601, message: 'unknown' } }));
    });`;
  const { code, stdout } = await hostler('probe', '--json', '--', process.execPath, '-e', script);
  expect(stdout).toMatch(/^[\x20-\x7e]*\n$/);
  const report = JSON.parse(stdout) as { serverInfo: { name: string }; failures: Record<string, string> };
  expect(report.serverInfo.name).toBe(name);
  expect(report.failures['tools/list']).not.toContain('\n');
  expect(code).toBe(1);
});

test('help and version are printed', async () => {
  expect((await hostler('--version')).stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
  const help = await hostler('probe', '--help');
  expect(help.code).toBe(0);
  for (const option of ['--json', '--timeout', '--env', '--header', '--cwd', '--sandbox'])
    expect(help.stdout).toContain(option);
  expect(help.stdout).not.toContain('\u001b');
});

test.each(['SIGINT', 'SIGTERM'] as const)('%s during a probe ends the server too', async (signal) => {
  const child = start('probe', '--timeout', '60s', '--', 'sleep', '1234');
  const server = await eventually('the server runs', () => sleeperOf(child.pid as number));
  child.kill(signal);
  const [code] = (await once(child, 'exit')) as [number];
  expect(code).not.toBe(0);
  await eventually('the server is gone', () => !isAlive(server));
});

/** The child of `pid` that runs `sleep 1234`. Between fork and exec a child still has the command line of its parent. */
function sleeperOf(pid: number): number | undefined {
  const found = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .find((name) => {
      try {
        const stat = readFileSync(`/proc/${name}/stat`, 'utf8');
        const [, ppid] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
        const [command = '', seconds] = readFileSync(`/proc/${name}/cmdline`, 'utf8').split('\0');
        return Number(ppid) === pid && command.endsWith('sleep') && seconds === '1234';
      } catch {
        return false;
      }
    });
  return found === undefined ? undefined : Number(found);
}
