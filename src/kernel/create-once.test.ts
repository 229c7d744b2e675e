import { spawnSync } from 'node:child_process';
import fs, { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { hostname, tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, onTestFinished, test } from 'vitest';
import { createOnce } from './create-once.js';

const folder = mkdtempSync(path.join(tmpdir(), 'hostler-once-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function replace(changes: Partial<typeof fs>): () => void {
  const real = Object.fromEntries(Object.keys(changes).map((name) => [name, fs[name as keyof typeof fs]]));
  const apply = (functions: object) => {
    Object.assign(fs, functions);
    syncBuiltinESMExports();
  };
  apply(changes);
  const restore = () => apply(real);
  onTestFinished(restore);
  return restore;
}

function fail(code: string): never {
  throw Object.assign(new Error(code), { code });
}

test('a file is created once, for its owner only, and nothing else is left', () => {
  const file = path.join(folder, 'key');
  expect([createOnce(file, 'first'), createOnce(file, 'second')]).toEqual([true, false]);
  expect([readFileSync(file, 'utf8'), statSync(file).mode & 0o777, readdirSync(folder)]).toEqual([
    ...['first', 0o600, ['key']],
  ]);
});

test('a folder that does not exist is an error', () => {
  expect(() => createOnce(path.join(folder, 'none', 'key'), 'x')).toThrow('ENOENT');
});

test('a draft that cannot be removed is not an error', () => {
  const file = path.join(folder, 'kept');
  const restore = replace({ rmSync: () => fail('EPERM') });
  expect(createOnce(file, 'first')).toBe(true);
  restore();
  expect(readFileSync(file, 'utf8')).toBe('first');
});

describe('without hard links', () => {
  const noLinks = (name: string) => {
    const own = path.join(folder, name);
    mkdirSync(own);
    replace({ linkSync: () => fail('EPERM') });
    return { own, file: path.join(own, 'key') };
  };

  test('a file is created once, for its owner only, and nothing else is left', () => {
    const { own, file } = noLinks('plain');
    expect([createOnce(file, 'first'), createOnce(file, 'second')]).toEqual([true, false]);
    expect([readFileSync(file, 'utf8'), statSync(file).mode & 0o777, readdirSync(own)]).toEqual([
      ...['first', 0o600, ['key']],
    ]);
  });

  test('an interrupted creation leaves no part of the file, and the next one succeeds', () => {
    const { own, file } = noLinks('cut');
    const cut = (_from: unknown, to: unknown) => {
      writeFileSync(`${String(to)}`, '');
      fail('EIO');
    };
    const restore = replace({ copyFileSync: cut, renameSync: () => fail('EIO') });
    expect(() => createOnce(file, 'first')).toThrow('EIO');
    restore();
    expect(createOnce(file, 'second')).toBe(true);
    expect([readFileSync(file, 'utf8'), readdirSync(own)]).toEqual(['second', ['key']]);
  });

  test('the lock of a process that was killed is taken over', () => {
    const { own, file } = noLinks('killed');
    const { pid } = spawnSync(process.execPath, ['--version']);
    writeFileSync(path.join(own, '.key.lock'), `${pid} ${'0'.repeat(16)} ${hostname()}\n`);
    expect([createOnce(file, 'first'), readFileSync(file, 'utf8'), readdirSync(own)]).toEqual([true, 'first', ['key']]);
  });

  test('a symbolic link is not replaced, even if its target does not exist', () => {
    const { file } = noLinks('link');
    fs.symlinkSync('nowhere', file);
    expect([createOnce(file, 'first'), fs.readlinkSync(file)]).toEqual([false, 'nowhere']);
  });
});
