import { expect, test } from 'vitest';
import { scriptFiles } from './script-files.js';

const files = new Set(['server.js', './dist/index.js', '/srv/app.py', 'loader.mjs', 'secret.txt', '/data/secret.txt']);
const found = (command: string, ...args: string[]): Promise<string[]> =>
  scriptFiles(command, args, async (arg) => files.has(arg));

test.each([
  ['the script of an interpreter', 'node', ['server.js'], ['server.js']],
  ['an interpreter with a version', '/usr/bin/python3.12', ['-u', '/srv/app.py'], ['/srv/app.py']],
  ['a script after options', 'node', ['--no-warnings', './dist/index.js'], ['./dist/index.js']],
  ['modules that are loaded before', 'node', ['--import', 'loader.mjs', 'server.js'], ['loader.mjs', 'server.js']],
  ['modules after an equals sign', 'node', ['--import=loader.mjs', 'server.js'], ['loader.mjs', 'server.js']],
  ['a subcommand before', 'uv', ['run', '/srv/app.py'], ['/srv/app.py']],
  ['no argument of the script', 'node', ['server.js', 'secret.txt'], ['server.js']],
  ['no argument of a script that is missing', 'node', ['./gone.js', '/data/secret.txt'], []],
  ['no argument of a module', 'python', ['-m', 'http.server', 'secret.txt'], []],
  ['no argument of code given as text', 'sh', ['-c', 'cat "$0"', '/data/secret.txt'], []],
  ['no argument of a program that runs no scripts', 'cat', ['/data/secret.txt'], []],
  ['no argument of a package runner', 'npx', ['-y', 'some-server', '/data/secret.txt'], []],
])('%s', async (_name, command, args, expected) => {
  expect(await found(command, ...args)).toEqual(expected);
});
