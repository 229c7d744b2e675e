/** What `hostler up` does not load before it serves, and the compile cache that makes the next start fast. */
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import module from 'node:module';
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

const hasCompileCache = 'enableCompileCache' in module;

test('Node caches the compiled code of a run for its user alone, and spoilt code does no harm', async () => {
  place = new Workplace();
  place.configure({ mcpServers: { twenty: { command: 'perl', args: [twentyTools] } } });
  const cache = path.join(place.dataDir, 'compile-cache');
  const once = async () => {
    const up = place.up();
    await listed(await up.ready());
    up.child.kill('SIGTERM');
    expect((await up.closed).code).toBe(0);
  };
  await once();
  expect(existsSync(cache)).toBe(hasCompileCache);
  const files = hasCompileCache ? readdirSync(cache, { recursive: true, encoding: 'utf8' }) : [];
  for (const file of files.map((name) => path.join(cache, name)))
    if (statSync(file).isFile()) writeFileSync(file, Buffer.alloc(1_000, 7));
  await once();
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
