/** What `hostler up` does not do before it serves, and what it keeps so that the next start is quick. */
import { execFile } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterEach, expect, test } from 'vitest';
import { eventually } from '../eventually.js';
import { Running, Workplace } from './hostler-process.js';

const run = promisify(execFile);
let place: Workplace;
let folder: string | undefined;

afterEach(async () => {
  await place?.remove();
  if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
  folder = undefined;
});

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

test('the code of a run is kept for the next, for nobody else to read, and spoilt code does no harm', async () => {
  place = new Workplace();
  place.configure({ mcpServers: { twenty: { command: 'perl', args: [twentyTools] } } });
  const kept = path.join(place.dataDir, 'code-cache');
  const once = async () => {
    const up = place.up();
    await listed(await up.ready());
    up.child.kill('SIGTERM');
    expect((await up.closed).code).toBe(0);
  };
  await once();
  expect(statSync(kept).mode & 0o777).toBe(0o600);
  const good = readFileSync(kept);
  writeFileSync(kept, Buffer.concat([good.subarray(0, 64), Buffer.alloc(good.length, 7)]));
  await once();
  expect(readFileSync(kept).subarray(64, 72)).toEqual(good.subarray(64, 72));
});

test('a command that failed keeps nothing', async () => {
  place = new Workplace();
  place.configure('{');
  const { code, stderr } = await place.up().closed;
  expect(code).toBe(1);
  // Thrown by the bundle, told by who runs it.
  expect(stderr).toMatch(/^hostler: .*hostler\.json.* \[invalid_spec\]\n/);
  expect(existsSync(path.join(place.dataDir, 'code-cache'))).toBe(false);
});

function bundleIn(place: string) {
  const bundle = path.join(place, 'a.bundle.js');
  const source = new URL('../../dist/cli/kept-code.js', import.meta.url).href;
  const says = async (word: string, build = 'a') => {
    writeFileSync(
      bundle,
      `// ${build.repeat(64)}\n(function (exports, require, module) {\nexports.say = () => '${word}';\n})\n`,
    );
    const code = `const { runBundle } = await import(${JSON.stringify(source)});
      console.log(runBundle(${JSON.stringify(bundle)}, ${JSON.stringify(place)}).say());`;
    return (await run(process.execPath, ['--input-type=module', '-e', code])).stdout.trim();
  };
  return { says, kept: path.join(place, 'code-cache') };
}

/**
 * V8 takes kept code for any source of the same length: that is how it shows whether kept code was used, and why a bundle
 * must say which one it is.
 */
test('kept code is used for the very bundle it was made of, from a folder that only we can write to', async () => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-kept-'));
  const { says } = bundleIn(folder);
  expect(await says('one', 'a')).toBe('one');
  expect(await says('two', 'a')).toBe('one');
  chmodSync(folder, 0o777);
  expect(await says('two', 'a')).toBe('two');
  chmodSync(folder, 0o700);
  expect(await says('two', 'b')).toBe('two');
});

test('kept code that somebody else may have put there, while the folder was open to others, is not run', async () => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-kept-'));
  const { says, kept } = bundleIn(folder);
  expect([await says('one'), await says('two')]).toEqual(['one', 'one']);
  chmodSync(kept, 0o606);
  // What is not used is made anew, and that is.
  expect([await says('two'), await says('one')]).toEqual(['two', 'two']);
  renameSync(kept, path.join(folder, 'elsewhere'));
  symlinkSync('elsewhere', kept);
  expect([await says('one'), await says('two')]).toEqual(['one', 'one']);
  if (process.getuid?.() === 0) {
    chownSync(kept, 65_534, 65_534);
    expect(await says('two')).toBe('two');
  }
});
