/**
 * The package as users get it: packed from a fresh clone, installed into an empty folder, run from the command line, imported,
 * required, and bundled by other people's bundlers. Each program embeds a host with a stdio and an HTTP server and calls both.
 * Packages are installed from the registry that npm is set up with.
 */
import { execFile } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { bin, bundlerTools, ensureBundlerTools, root } from '../../scripts/bootstrap.mjs';
import { httpFixtures, type RunningFixture, stdioFixtures } from '../fixtures/fixture-servers.js';

const run = promisify(execFile);
const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-packed-'));
const clone = path.join(folder, 'clone');
const app = path.join(folder, 'app');
/** The folder in which bundles run: it has only the package that is documented as external. */
const alone = path.join(folder, 'alone');
let remote: RunningFixture;
/** The input of the programs. */
let task = '';

/** For ES modules and CommonJS alike: the import is put in front. */
const body = `
async function main() {
  const { mcpServers, stateDir } = JSON.parse(process.env.TASK);
  const host = await createHost({ mcpServers }, { stateDir });
  try {
    const answers = [];
    for (const server of Object.keys(mcpServers)) {
      const { bytes } = await host.call(server, 'echo', { text: 'from ' + server });
      answers.push(JSON.parse(bytes.toString()).content[0].text);
    }
    const broker = await createBroker({ host, config: { broker: { listen: { port: 0 } } }, dataDir: stateDir });
    answers.push(broker.url.startsWith('ws://') ? 'a broker' : broker.url);
    await broker.close();
    console.log(JSON.stringify(answers));
  } finally {
    await host.close();
  }
}
main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
`;
const programs = {
  esm: `import { createHost } from 'hostler';\nimport { createBroker } from 'hostler/broker';\n${body}`,
  cjs: `const { createHost } = require('hostler');\nconst { createBroker } = require('hostler/broker');\n${body}`,
};
const answered = ['from local', 'from remote', 'a broker'];

async function answersOf(file: string): Promise<unknown> {
  const stateDir = mkdtempSync(path.join(folder, 'state-'));
  const env = { ...process.env, TASK: JSON.stringify({ ...JSON.parse(task), stateDir }) };
  const { stdout, stderr } = await run(process.execPath, [file], { cwd: path.dirname(file), env, timeout: 60_000 });
  // Node 20 calls `require` of an ES module experimental.
  expect(stderr.replace(/^.*ExperimentalWarning: .*\n.*--trace-warnings.*\n/gm, '')).toBe('');
  return JSON.parse(stdout);
}

beforeAll(async () => {
  await ensureBundlerTools();
  const { stdout } = await run('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], { cwd: root });
  for (const file of stdout.split('\0').filter((name) => name !== '' && existsSync(path.join(root, name)))) {
    mkdirSync(path.dirname(path.join(clone, file)), { recursive: true });
    cpSync(path.join(root, file), path.join(clone, file));
  }
  symlinkSync(path.join(root, 'node_modules'), path.join(clone, 'node_modules'));
  await run('npm', ['pack', '--pack-destination', folder], { cwd: clone });
  mkdirSync(app);
  writeFileSync(path.join(app, 'package.json'), '{ "private": true }');
  const { version } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as { version: string };
  const tarball = path.join(folder, `hostler-${version}.tgz`);
  await run('npm', ['install', '--no-audit', '--no-fund', tarball], { cwd: app });
  mkdirSync(path.join(alone, 'node_modules'), { recursive: true });
  symlinkSync(path.join(app, 'node_modules/libsql'), path.join(alone, 'node_modules/libsql'));
  const http = httpFixtures.find(({ implementation, mode }) => implementation === 'sdk2' && mode === 'modern');
  const stdio = stdioFixtures.find(({ name }) => name === 'sdk2-stdio-modern');
  if (!http || !stdio) throw new Error('no fixture');
  remote = await http.start();
  const { command, args, env } = stdio;
  task = JSON.stringify({ mcpServers: { local: { command, args, env }, remote: { url: remote.url } } });
  for (const [kind, text] of Object.entries(programs))
    writeFileSync(path.join(app, `program.${kind === 'esm' ? 'mjs' : 'cjs'}`), text);
}, 300_000);

afterAll(async () => {
  await remote?.stop();
  rmSync(folder, { recursive: true, force: true });
});

test('E20 the tarball of a fresh clone contains the build', () => {
  const installed = path.join(app, 'node_modules/hostler');
  for (const file of ['dist/index.js', 'dist/index.d.ts', 'dist/cli/main.cjs', 'dist/lib/LICENSES.txt'])
    expect([file, existsSync(path.join(installed, file))]).toEqual([file, true]);
});

test('E20 hostler up runs, and hostler status asks it', async () => {
  const config = path.join(app, 'hostler.json');
  const dataDir = path.join(folder, 'data');
  writeFileSync(config, JSON.stringify({ mcpServers: (JSON.parse(task) as { mcpServers: object }).mcpServers }));
  const hostler = path.join(app, 'node_modules/.bin/hostler');
  const child = execFile(hostler, ['up', '--config', config, '--data-dir', dataDir, '--json', '--port=0']);
  try {
    const ready = await new Promise<string>((resolve, reject) => {
      child.stdout?.once('data', (line: Buffer | string) => resolve(String(line)));
      child.once('exit', (code) => reject(new Error(`it ended with ${code}`)));
    });
    expect(JSON.parse(ready)).toMatchObject({ ready: true });
    const { stdout } = await run(hostler, ['call', 'local', 'echo', '{"text":"hello"}', '--data-dir', dataDir]);
    expect(stdout).toContain('hello');
  } finally {
    child.removeAllListeners('exit');
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGTERM');
    await ended;
  }
});

describe('E20 a program that embeds a host and a broker', () => {
  test.each(['program.mjs', 'program.cjs'])('%s runs as it is', async (file) => {
    expect(await answersOf(path.join(app, file))).toEqual(answered);
  });

  const tools = createRequire(path.join(bundlerTools, 'package.json'));
  const outside = ['libsql'];
  const bundlers: ReadonlyArray<readonly [string, 'esm' | 'cjs', (entry: string, out: string) => Promise<unknown>]> = [
    ...(['esm', 'cjs'] as const).map((format) => {
      const build = async (entry: string, outfile: string) => {
        const esbuild = tools('esbuild') as { build(options: object): Promise<{ warnings: { id: string }[] }> };
        const options = { entryPoints: [entry], outfile, format, external: outside, bundle: true, platform: 'node' };
        await esbuild.build({ ...options, logLevel: 'error' });
      };
      return ['esbuild', format, build] as const;
    }),
    ...(['esm', 'cjs'] as const).map((format) => {
      const build = async (entry: string, file: string) => {
        const { rolldown } = (await import(tools.resolve('rolldown'))) as typeof import('rolldown');
        const bundle = await rolldown({ input: entry, platform: 'node', external: outside, cwd: app });
        await bundle.write({ file, format, codeSplitting: false });
        await bundle.close();
      };
      return ['rolldown', format, build] as const;
    }),
    [
      'webpack',
      'cjs',
      (entry, out) =>
        new Promise<void>((resolve, reject) => {
          const webpack = tools('webpack') as (
            options: object,
            done: (error: Error | null, stats?: { hasErrors(): boolean; toString(): string }) => void,
          ) => void;
          const output = { path: path.dirname(out), filename: path.basename(out) };
          const options = { entry, output, target: 'node', mode: 'none', externals: { libsql: 'commonjs libsql' } };
          webpack({ ...options, context: app }, (error, stats) => {
            if (error || stats?.hasErrors()) reject(error ?? new Error(stats?.toString()));
            else resolve();
          });
        }),
    ],
  ];
  test.each(bundlers)('%s, as %s', async (name, format, build) => {
    const out = path.join(alone, `${name}.${format === 'esm' ? 'mjs' : 'cjs'}`);
    await build(path.join(app, 'program.mjs'), out);
    expect(await answersOf(out)).toEqual(answered);
  });
});

test('E20 its types are found by programs of both kinds', async () => {
  const program =
    "import { createHost, type Host } from 'hostler';\nexport const open = (): Promise<Host> => createHost({});\n";
  for (const file of ['typed.mts', 'typed.cts']) writeFileSync(path.join(app, file), program);
  const options = ['--noEmit', '--strict', '--skipLibCheck', '--module', 'nodenext', '--target', 'es2022'];
  const types = ['--types', 'node', '--typeRoots', path.join(root, 'node_modules/@types')];
  await run(process.execPath, [bin('tsc'), ...options, ...types, 'typed.mts', 'typed.cts'], { cwd: app });
});

test('E20 importing it costs little CPU', async () => {
  const measure = `const before = process.cpuUsage(); import('hostler').then(() => {
    const { user, system } = process.cpuUsage(before); console.log((user + system) / 1000); });`;
  const costs: number[] = [];
  for (let round = 0; round < 7; round++) {
    const { stdout } = await run(process.execPath, ['-e', measure], { cwd: app });
    costs.push(Number(stdout));
  }
  const [cheapest = 0] = costs.sort((a, b) => a - b);
  console.log(
    `import of hostler: ${cheapest.toFixed(0)} ms of CPU at best of ${costs.length}, ${costs.at(-1)?.toFixed(0)} at worst`,
  );
  expect(cheapest).toBeLessThan(120);
});
