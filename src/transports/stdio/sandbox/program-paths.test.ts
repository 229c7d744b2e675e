import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { resolveHostPaths } from './host-paths.js';
import { isWithin } from './mounts.js';
import { type ProgramRequest, programPaths, scriptFiles } from './program-paths.js';

let folder: string;
const at = (name: string): string => path.join(folder, name);
beforeEach(() => {
  folder = realpathSync(mkdtempSync(path.join(os.tmpdir(), 'hostler-program-')));
  mkdirSync(at('home/.local/bin'), { recursive: true });
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function file(name: string, text = ''): string {
  mkdirSync(path.dirname(at(name)), { recursive: true });
  writeFileSync(at(name), text);
  return at(name);
}

function link(name: string, to: string): string {
  mkdirSync(path.dirname(at(name)), { recursive: true });
  symlinkSync(to, at(name));
  return at(name);
}

async function requestFor(file: string, more: Partial<ProgramRequest> = {}): Promise<ProgramRequest> {
  const hidden = [at('home/.local/share/hostler')];
  const hostPaths = await resolveHostPaths({ homes: undefined, hidden, userHomes: [at('home')], programs: [] });
  return { file, args: [], cwd: folder, searchPath: '', hostPaths, isSystem, writable: [], ...more };
}

/** The visible paths and the links, relative to the folder. */
async function needs(command: string, more: Partial<ProgramRequest> = {}) {
  const { shown, links } = await programPaths(await requestFor(command, more));
  const inFolder = (name: string): string => path.relative(folder, name);
  return [
    shown.map(inFolder).sort(),
    links
      .map((each) => inFolder(each.at))
      .filter((name) => !name.startsWith('..'))
      .sort(),
  ];
}
const isSystem = (real: string): boolean => isWithin('/usr', real);

test('a system program needs no further paths', async () => {
  expect(await needs('/usr/bin/env')).toEqual([[], []]);
});

test('the installation that a program belongs to is shown: nvm', async () => {
  file('home/.nvm/v1/lib/node_modules/npm/bin/npx-cli.js', '#!/usr/bin/env node\n');
  file('home/.nvm/v1/bin/node');
  file('home/.nvm/alias');
  const npx = link('home/.nvm/v1/bin/npx', '../lib/node_modules/npm/bin/npx-cli.js');
  expect(await needs(npx, { searchPath: at('home/.nvm/v1/bin') })).toEqual([
    ['home/.nvm/v1'],
    ['home/.nvm/v1/bin/npx'],
  ]);
});

test('shims make the installation above them visible: pyenv', async () => {
  file('home/.pyenv/libexec/pyenv');
  expect(await needs(file('home/.pyenv/shims/python', '#!/usr/bin/env bash\n'))).toEqual([['home/.pyenv'], []]);
  const { variables } = await programPaths(await requestFor(at('home/.pyenv/shims/python')));
  expect(variables).toEqual({ PYENV_ROOT: at('home/.pyenv') });
});

test('a tool, its virtual environment and the interpreter behind it are shown: uv tools', async () => {
  file('home/.local/share/uv/python/cpython/lib/os.py');
  file('home/.local/share/uv/python/cpython/bin/python3');
  file('home/.local/share/uv/tools/black/pyvenv.cfg');
  link('home/.local/share/uv/tools/black/bin/python', at('home/.local/share/uv/python/cpython/bin/python3'));
  file('home/.local/share/uv/tools/black/bin/black', `#!${at('home/.local/share/uv/tools/black/bin/python')}\n`);
  const black = link('home/.local/bin/black', '../share/uv/tools/black/bin/black');
  expect(await needs(black)).toEqual([
    ['home/.local/share/uv/python/cpython', 'home/.local/share/uv/tools/black'],
    ['home/.local/bin/black', 'home/.local/share/uv/tools/black/bin/python'],
  ]);
});

test('of a folder that is no installation, only its programs are visible', async () => {
  file('home/.cargo/credentials.toml');
  expect(await needs(file('home/.cargo/bin/server'))).toEqual([['home/.cargo/bin'], []]);
  expect(await needs(file('home/.local/bin/uvx'))).toEqual([['home/.local/bin'], []]);
});

test('neither the home of the user nor a folder above it is ever shown', async () => {
  file('home/package.json');
  file('package.json');
  mkdirSync(at('home/lib'));
  expect(await needs(file('home/bin/server'))).toEqual([['home/bin'], []]);
  expect(await needs(file('home/server'))).toEqual([['home/server'], []]);
});

test('a script is shown with its package', async () => {
  file('home/project/pyproject.toml');
  const args = [file('home/project/src/deep/server.py')];
  expect(await needs('/usr/bin/python3', { args })).toEqual([['home/project'], []]);
});

test('a script is found from the working folder', async () => {
  file('home/project/package.json');
  file('home/project/server.js');
  const cwd = at('home/project');
  expect(await needs('/usr/bin/node', { args: ['server.js'], cwd })).toEqual([['home/project'], []]);
});

test('a script below node_modules is shown with all packages beside it', async () => {
  file('home/project/package.json');
  file('home/project/node_modules/server/package.json');
  const args = [file('home/project/node_modules/server/node_modules/inner/dist/index.js')];
  expect(await needs('/usr/bin/node', { args })).toEqual([['home/project/node_modules'], []]);
});

test('a package of a workspace is shown with the dependencies above it', async () => {
  file('home/mono/node_modules/dependency/index.js');
  file('home/mono/packages/server/package.json');
  const args = [file('home/mono/packages/server/dist/index.js')];
  expect(await needs('/usr/bin/node', { args })).toEqual([['home/mono/node_modules', 'home/mono/packages/server'], []]);
});

test('a script without a package is shown alone', async () => {
  expect(await needs('/usr/bin/node', { args: [file('home/scripts/server.js')] })).toEqual([
    ['home/scripts/server.js'],
    [],
  ]);
});

test('paths that the server can write to are neither followed nor searched', async () => {
  file('home/.ssh/id');
  file('home/package.json');
  const writable = [at('home/work')];
  const planted = link('home/work/server.js', '../.ssh/id');
  expect(await needs('/usr/bin/node', { args: [planted], writable })).toEqual([[], []]);
  expect(await needs('/usr/bin/node', { args: [file('home/work/real.js')], writable })).toEqual([[], []]);
});

test('the first line of a script that the server can write to shows no file', async () => {
  file('home/.ssh/id');
  file('home/secrets/package.json');
  file('home/secrets/run.js');
  file('home/.nvm/v1/lib/module');
  file('home/.nvm/v1/bin/node');
  const writable = [at('home/work')];
  const searchPath = at('home/.nvm/v1/bin');
  const shownBy = async (line: string) =>
    (await needs(file('home/work/server', `#!${line}\n`), { writable, searchPath }))[0];
  expect(await shownBy(at('home/.ssh/id'))).toEqual([]);
  expect(await shownBy(at('home/secrets/run.js'))).toEqual([]);
  // env runs perl, and after "-u" the text that looks like the program name is a path.
  expect(await shownBy('/usr/bin/env -S -u ../../../.ssh/id perl')).toEqual([]);
  expect(await shownBy('/usr/bin/env node')).toEqual(['home/.nvm/v1']);
});

test('a folder of dependencies is not shown through a link that the server can write to', async () => {
  file('home/.ssh/id');
  file('home/mono/packages/server/package.json');
  link('home/work/modules', '../.ssh');
  link('home/mono/node_modules', '../work/modules');
  const args = [file('home/mono/packages/server/index.js')];
  const [shown] = await needs('/usr/bin/node', { args, writable: [at('home/work')] });
  expect(shown).toEqual(['home/mono/packages/server']);
});

const scripts = new Set([
  'server.js',
  './dist/index.js',
  '/srv/app.py',
  'loader.mjs',
  'secret.txt',
  '/data/secret.txt',
]);
const scriptsOf = (command: string, ...args: string[]): Promise<string[]> =>
  scriptFiles(command, args, async (arg) => scripts.has(arg));

test.each([
  ['the script of an interpreter', 'node', ['server.js'], ['server.js']],
  ['an interpreter with a version', '/usr/bin/python3.12', ['-u', '/srv/app.py'], ['/srv/app.py']],
  ['a script after options', 'node', ['--no-warnings', './dist/index.js'], ['./dist/index.js']],
  ['modules that are preloaded', 'node', ['--import', 'loader.mjs', 'server.js'], ['loader.mjs', 'server.js']],
  ['modules after an equals sign', 'node', ['--import=loader.mjs', 'server.js'], ['loader.mjs', 'server.js']],
  ['a script after a subcommand', 'uv', ['run', '/srv/app.py'], ['/srv/app.py']],
  ['no argument of the script', 'node', ['server.js', 'secret.txt'], ['server.js']],
  ['no argument of a script that is missing', 'node', ['./gone.js', '/data/secret.txt'], []],
  ['no argument of a module', 'python', ['-m', 'http.server', 'secret.txt'], []],
  ['no argument of code given as text', 'sh', ['-c', 'cat "$0"', '/data/secret.txt'], []],
  ['no argument of a program that runs no scripts', 'cat', ['/data/secret.txt'], []],
  ['no argument of a package runner', 'npx', ['-y', 'some-server', '/data/secret.txt'], []],
])('files named by a command line: %s', async (_name, command, args, expected) => {
  expect(await scriptsOf(command, ...args)).toEqual(expected);
});
