import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { readKeyFile } from './key-file.js';

const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-key-file-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const fileWith = (text: string): string => {
  const file = path.join(folder, `key-${text.length}`);
  writeFileSync(file, text, { mode: 0o600 });
  return file;
};

test('the key is the text of the file, without surrounding blanks', () => {
  expect(readKeyFile(fileWith(' hk_secret\n'), 'keyFile')).toBe('hk_secret');
});

test.each([
  ['a missing file', path.join(folder, 'nowhere'), 'cannot be read (ENOENT)', 'see that Hostler may read it'],
  ['an empty file', fileWith(' \n'), 'is empty', 'write the key into it'],
  ['a file with two words', fileWith('hk_one hk_two'), 'holds more than one word', 'write the key into it'],
  ['a large file', fileWith('hk_'.repeat(2_000)), 'is larger than 4096 bytes', 'write the key into it'],
])('%s: the error names the setting with its path, and quotes nothing of a key', (_what, file, what, next) => {
  let error: unknown;
  try {
    readKeyFile(file, 'broker.keyFile');
  } catch (caught) {
    error = caught;
  }
  expect(error).toMatchObject({
    code: 'invalid_spec',
    message: `the key file ${file} ${what}`,
    hint: expect.stringContaining(next),
    details: { field: 'broker.keyFile', reason: 'key_file', execution: 'not_executed' },
  });
  expect(JSON.stringify(error)).not.toContain('hk_');
});

test('a key file that other users can read is not used', () => {
  const file = fileWith('hk_shared');
  chmodSync(file, 0o640);
  expect(() => readKeyFile(file, '--key-file')).toThrow('can be read or changed by others');
});
