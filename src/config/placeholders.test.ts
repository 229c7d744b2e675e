import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { filesNamedIn } from './placeholder-syntax.js';
import { fillPlaceholders, PlaceholderFiles } from './placeholders.js';

const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-files-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test('E8 a file is read once, even if it is missing, and its content at that time is used', () => {
  const files = new PlaceholderFiles(folder);
  const write = (name: string, text: string) => writeFileSync(path.join(folder, name), text);
  write('a', 'first\n');
  expect([files.read('a'), files.read('none')]).toEqual([{ text: 'first' }, { why: 'cannot be read (ENOENT)' }]);
  write('a', 'second');
  write('none', 'second');
  expect(fillPlaceholders({ listen: `\${file:a}` }, { env: {}, folder, files }).config).toEqual({ listen: 'first' });
  expect(() => fillPlaceholders({ listen: `\${file:none}` }, { env: {}, folder, files })).toThrow('ENOENT');
});

test('a path that is not a small file gives no content', () => {
  const files = new PlaceholderFiles(folder);
  writeFileSync(path.join(folder, 'large'), Buffer.alloc(64 * 1024 + 1));
  expect([files.read('.'), files.read('large')]).toEqual([{ why: 'is not a file' }, { why: 'is larger than 64 KiB' }]);
});

test('the names of all files in a text are found, in their order', () => {
  expect(filesNamedIn(`\${file:a} \${env:B} \${file:c d}\${file:}`)).toEqual(['a', 'c d', '']);
});
