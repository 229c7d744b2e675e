import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, expect, test, vi } from 'vitest';
import { makeFolders } from './make-folders.js';

const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-folders-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test('missing folders are made for their owner alone; existing folders do not change', () => {
  const made = path.join(folder, 'a/b/c');
  makeFolders(made);
  makeFolders(made);
  expect([made, path.dirname(made)].map((each) => statSync(each).mode & 0o777)).toEqual([0o700, 0o700]);
});

test('a file at the path of a folder is an error', () => {
  const file = path.join(folder, 'file');
  writeFileSync(file, '');
  expect(() => makeFolders(file)).toThrow(expect.objectContaining({ code: 'EEXIST' }));
  expect(() => makeFolders(path.join(file, 'below'))).toThrow(expect.objectContaining({ code: 'ENOTDIR' }));
});

test('a folder in which nothing can be created is an error, not a loop', () => {
  expect(() => makeFolders('/proc/hostler/data')).toThrow(expect.objectContaining({ code: 'ENOENT' }));
});

test('a root that does not exist is an error, not a recursion without end', () => {
  const dirname = vi.spyOn(path, 'dirname').mockImplementation((each) => each);
  try {
    expect(() => makeFolders(path.join(folder, 'missing/root'))).toThrow(expect.objectContaining({ code: 'ENOENT' }));
  } finally {
    dirname.mockRestore();
  }
});
