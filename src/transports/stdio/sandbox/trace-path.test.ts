import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { isWithin, traceFuturePath, tracePath } from './mounts.js';

let folder: string;
const at = (...names: string[]): string => path.join(folder, ...names);
beforeAll(() => {
  folder = realpathSync(mkdtempSync(path.join(os.tmpdir(), 'hostler-trace-')));
  mkdirSync(at('versions', 'v1', 'bin'), { recursive: true });
  mkdirSync(at('lib'));
  writeFileSync(at('lib', 'cli.js'), '');
  symlinkSync('versions/v1', at('current'));
  symlinkSync('../../../lib/cli.js', at('versions', 'v1', 'bin', 'npx'));
  symlinkSync(at('current', 'bin', 'npx'), at('absolute'));
  symlinkSync('loop', at('loop'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test('every link is reported by its real path, in order', async () => {
  expect(await tracePath(at('absolute'))).toEqual({
    real: at('lib', 'cli.js'),
    links: [
      { at: at('absolute'), to: at('current', 'bin', 'npx') },
      { at: at('current'), to: 'versions/v1' },
      { at: at('versions', 'v1', 'bin', 'npx'), to: '../../../lib/cli.js' },
    ],
  });
});

test('a path without links is its own real path', async () => {
  expect(await tracePath(at('lib', '.', '..', 'lib', 'cli.js'))).toEqual({ real: at('lib', 'cli.js'), links: [] });
});

test.each([
  ['missing', 'ENOENT'],
  ['loop', 'ELOOP'],
  ['lib/cli.js/x', 'ENOTDIR'],
])('the path %s is reported as %s', async (name, code) => {
  await expect(tracePath(at(name))).rejects.toMatchObject({ code });
});

test('of a path that does not exist yet, the part that exists is resolved', async () => {
  expect(await traceFuturePath(at('current', 'new', 'file'))).toEqual({
    real: at('versions', 'v1', 'new', 'file'),
    links: [{ at: at('current'), to: 'versions/v1' }],
  });
});

test.each([
  ['/a', '/a', true],
  ['/a', '/a/b', true],
  ['/a', '/ab', false],
  ['/a/b', '/a', false],
  ['/', '/a', true],
])('the folder %s contains %s: %s', (outer, inner, holds) => {
  expect(isWithin(outer, inner)).toBe(holds);
});
