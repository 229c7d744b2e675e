import { chmodSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { listenEntry } from '../../config/listen-settings.js';
import { isLoopback } from '../../config/values.js';
import { isHostError } from '../../kernel/errors.js';
import { parseCommandArgs } from '../command.js';
import { prepareDataDir } from '../config/data-dir.js';
import { controlPath } from '../control/control-protocol.js';
import { exitCodeOf } from '../exit-codes.js';
import { up } from '../up.js';
import { listenOf, upOptions } from './up-options.js';

const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-options-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const options = (...argv: string[]) =>
  upOptions(parseCommandArgs(up, ['--config', 'x.json', ...argv]), { HOME: '/h' }, '/w');

/** The exit code and the error. */
function failure(run: () => unknown): [number, string] {
  try {
    run();
  } catch (error) {
    if (isHostError(error)) return [exitCodeOf(error), `${error.message}; ${error.hint}`];
    throw error;
  }
  return [0, ''];
}

test('without options every setting has its default', () => {
  expect(options()).toEqual({
    config: '/w/x.json',
    isFoundInFolder: false,
    host: undefined,
    port: undefined,
    dataDir: expect.stringMatching(/^\/h\/\.local\/share\/hostler\/projects\/w-[0-9a-f]{10}$/),
    auth: 'key',
    isStdio: false,
    isRelayed: false,
    isJson: false,
    showsKey: false,
  });
});

test('the command line has priority over the configuration', () => {
  const configured = listenEntry.parse({ host: '::1', port: 1, allowedHosts: ['a'] });
  expect(listenOf(configured, options('--port', '0'))).toMatchObject({ host: '::1', port: 0, allowedHosts: ['a'] });
  expect(listenOf(configured, options('--host', '0.0.0.0'))).toMatchObject({ host: '0.0.0.0', port: 1 });
});

test.each([
  ['a port above 65535', ['--port', '70000'], 'is not a number from 0 to 65535'],
  ['an empty port', ['--port', ''], 'is not a number from 0 to 65535'],
  ['an unknown option', ['--prot', '0'], 'usage: hostler up'],
  ['an argument too many', ['down'], 'usage: hostler up'],
  ['an odd kind of auth', ['--auth', 'maybe'], 'neither key nor none'],
])('%s is wrong usage', (_name, argv, message) => {
  expect(failure(() => options(...argv))).toEqual([2, expect.stringContaining(message)]);
});

describe('without a key', () => {
  test.each(['127.0.0.1', '127.9.9.9', '::1', '[::1]', 'localhost'])(
    '%s is accepted, because only this machine reaches it',
    (host) => {
      expect(listenOf(listenEntry.parse({ host }), options('--auth', 'none')).host).toBe(host);
    },
  );
  test.each(['0.0.0.0', '::', '10.0.0.1', '127.0.0.1.example.com', 'localhost.example.com', ''])(
    "'%s' is refused",
    (host) => {
      expect(isLoopback(host)).toBe(false);
      const run = () => listenOf({ ...listenEntry.parse({}), host }, options('--auth', 'none'));
      expect(failure(run)).toEqual([2, expect.stringContaining('listen on 127.0.0.1 only')]);
    },
  );
});

describe('the data directory', () => {
  test('is created with access for its user only, and read access of other users is removed', () => {
    const made = path.join(folder, 'a', 'data');
    prepareDataDir(made);
    expect(statSync(made).mode & 0o777).toBe(0o700);
    chmodSync(made, 0o755);
    prepareDataDir(made);
    expect(statSync(made).mode & 0o777).toBe(0o700);
  });

  test('cannot be a file or be below a file', () => {
    const file = path.join(folder, 'file');
    writeFileSync(file, '');
    for (const dataDir of [file, path.join(file, 'data')])
      expect(failure(() => prepareDataDir(dataDir))).toEqual([1, expect.stringContaining('--data-dir')]);
  });

  test('is refused when others may write to it', () => {
    const open = path.join(folder, 'open');
    mkdirSync(open);
    chmodSync(open, 0o777);
    expect(failure(() => prepareDataDir(open))).toEqual([1, expect.stringContaining('chmod go-w')]);
  });

  test('must leave room for the path of a socket', () => {
    expect(controlPath('/data')).toBe('/data/control.sock');
    expect(failure(() => controlPath(`/${'d'.repeat(91)}`))).toEqual([1, expect.stringContaining('--data-dir')]);
  });
});

test('E8 the same relative name in two folders is two configurations: a client joins no Hostler of another folder', () => {
  const args = parseCommandArgs(up, ['--stdio', '--config', 'hostler.json']);
  const [one, other] = ['/one', '/other'].map((cwd) => upOptions(args, { HOME: '/h' }, cwd).config);
  expect([one, other]).toEqual(['/one/hostler.json', '/other/hostler.json']);
});
