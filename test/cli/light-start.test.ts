/** `hostler up` loads few modules before it serves, and the compile cache makes the next start fast. */
import { chmodSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, expect, test } from 'vitest';
import { eventually } from '../eventually.js';
import { Running, Workplace } from './hostler-process.js';

let place: Workplace;

afterEach(() => place?.remove());

const list = async ({ url, key }: { url: string; key: string }) => {
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': 'tools/list',
      authorization: `Bearer ${key}`,
    },
    body: JSON.stringify({
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/list',
      params: {
        _meta: {
          'io.modelcontextprotocol/protocolVersion': '2026-07-28',
          'io.modelcontextprotocol/clientCapabilities': {},
        },
      },
    }),
  });
  return ((await response.json()) as { result: { tools: unknown[] } }).result.tools;
};

/** A list does not wait for a server that starts slowly, as it may on a busy machine. */
const listed = (ready: { url: string; key: string }) =>
  eventually('all tools are listed', async () => (await list(ready)).length === 20);

const twentyTools = fileURLToPath(new URL('../../bench/twenty-tools.pl', import.meta.url));

test('servers that are processes are listed without undici and prom-client being loaded', async () => {
  place = new Workplace();
  place.configure({ mcpServers: { twenty: { command: 'perl', args: [twentyTools] } } });
  const spy = path.join(place.folder, 'spy.cjs');
  const seen = path.join(place.folder, 'seen');
  writeFileSync(
    spy,
    `process.once('exit', () => require('node:fs').writeFileSync(${JSON.stringify(seen)}, Object.keys(require.cache).join('\\n')));`,
  );
  const up = new Running(['up', '--config', place.config, '--data-dir', place.dataDir, '--json', '--port=0'], {
    NODE_OPTIONS: `--require ${spy}`,
  });
  try {
    await listed(await up.ready());
  } finally {
    up.child.kill('SIGTERM');
  }
  expect((await up.closed).code).toBe(0);
  const loaded = readFileSync(seen, 'utf8');
  expect(loaded).toContain('libsql');
  expect(loaded).not.toMatch(/undici|prom-client/);
});

test('the compiled code of a run is saved for its user only, and damaged code does no harm', async () => {
  place = new Workplace();
  place.configure({ mcpServers: { twenty: { command: 'perl', args: [twentyTools] } } });
  const code = path.join(place.dataDir, 'compile-cache', 'up');
  const once = async () => {
    const up = place.up();
    await listed(await up.ready());
    up.child.kill('SIGTERM');
    expect((await up.closed).code).toBe(0);
    expect(statSync(code).mode & 0o777).toBe(0o600);
    return readFileSync(code);
  };
  const first = await once();
  writeFileSync(code, Buffer.alloc(first.length, 7));
  expect((await once()).subarray(32, 48)).toEqual(first.subarray(32, 48));
});

test('compiled code from a folder that others can write to is not used', async () => {
  place = new Workplace();
  place.configure({});
  const cache = path.join(place.dataDir, 'compile-cache');
  mkdirSync(cache, { recursive: true });
  chmodSync(cache, 0o777);
  const up = place.up();
  await up.ready();
  up.child.kill('SIGTERM');
  expect((await up.closed).code).toBe(0);
  expect(readdirSync(cache)).toEqual([]);
});

test('an error of the bundle is reported by the command', async () => {
  place = new Workplace();
  place.configure('{');
  const { code, stderr } = await place.up().closed;
  expect(code).toBe(1);
  expect(stderr).toMatch(/^hostler: .*hostler\.json.* \[invalid_spec\]\n/);
});

/** The files of Hostler that a command loads. Node lists every script that it ran in its coverage. */
async function loadedBy(...args: string[]): Promise<string[]> {
  const folder = path.join(place.folder, `coverage-${args[0]}`);
  const running = new Running([...args], { NODE_V8_COVERAGE: folder, HOSTLER_DATA_DIR: place.dataDir }, place.folder);
  await running.closed;
  const dist = new URL('../../dist/', import.meta.url).href;
  const urls = readdirSync(folder).flatMap((name) => {
    const { result } = JSON.parse(readFileSync(path.join(folder, name), 'utf8')) as { result: { url: string }[] };
    return result.map(({ url }) => url);
  });
  return [...new Set(urls)].filter((url) => url.startsWith(dist)).map((url) => url.slice(dist.length));
}

test('AC-E14 --version, status and call on a running host load no other command, identity, gateway, broker or host', async () => {
  place = new Workplace();
  place.configure({ mcpServers: { twenty: { command: 'perl', args: [twentyTools] } } });
  await place.up().ready();
  expect((await loadedBy('--version')).sort()).toEqual(['cli/main.cjs', 'cli/main.js']);
  // What main.cjs contains is not listed as files: commands and parts that it loads later are imports of their files.
  const main = readFileSync(new URL('../../dist/cli/main.cjs', import.meta.url), 'utf8');
  for (const file of ['./login.js', './enable.js', './first.js']) expect(main).toContain(`import("${file}")`);
  expect(main).not.toMatch(/class (?:Identity|Gateway|Host|Broker)\b/);
  for (const [command, ...args] of [['status'], ['call', 'twenty.none', 'a=1']] as [string, ...string[]][]) {
    const loaded = await loadedBy(command, ...args);
    expect(loaded.filter((file) => /^cli\/[^/]+\.js$/.test(file)).sort()).toEqual(
      ['cli/command.js', 'cli/exit-codes.js', 'cli/main.js', `cli/${command}.js`].sort(),
    );
    expect(loaded.filter((file) => /^(?:identity|gateway|broker|host|cli\/(?:up|relay|trust))\b/.test(file))).toEqual(
      [],
    );
  }
});

test('the relay, which every client runs, loads modules of Node only', () => {
  const bundle = readFileSync(new URL('../../dist/cli/relay.bundle.cjs', import.meta.url), 'utf8');
  const modules = [...bundle.matchAll(/\b(?:require|import)\("([^"]+)"\)/g)].map(([, name]) => name as string);
  expect(modules).toContain('node:net');
  expect(modules.filter((name) => !isBuiltin(name))).toEqual([]);
});
