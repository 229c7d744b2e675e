import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { createOnce } from './create-once.js';

const folder = mkdtempSync(path.join(tmpdir(), 'hostler-once-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

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
