import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { findConfig } from './find-config.js';

const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-find-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const [cwd, account, empty] = [path.join(folder, 'cwd'), path.join(folder, 'account'), path.join(folder, 'empty')];
const ofAccount = path.join(account, 'hostler', 'hostler.json');
const env = { XDG_CONFIG_HOME: account };
for (const made of [cwd, empty, path.dirname(ofAccount)]) mkdirSync(made, { recursive: true });
writeFileSync(path.join(cwd, 'hostler.json'), '{}');

test('without a configuration the error shows an example of one', () => {
  expect(() => findConfig({ env, cwd: empty })).toThrow(
    expect.objectContaining({
      message: expect.stringContaining(ofAccount),
      hint: expect.stringContaining('mcpServers'),
    }),
  );
});

test('E8 the working folder is not searched for a command that other programs start', () => {
  expect(() => findConfig({ env, cwd, searchesFolder: false })).toThrow(
    'with --stdio the working folder is not searched',
  );
  writeFileSync(ofAccount, '{}');
  expect(findConfig({ env, cwd, searchesFolder: false })).toEqual({ file: ofAccount, isFoundInFolder: false });
});

test('E8 only a file of the working folder counts as found, not a named file or the file of the user', () => {
  writeFileSync(ofAccount, '{}');
  const found = { file: path.join(cwd, 'hostler.json'), isFoundInFolder: true };
  expect(findConfig({ env, cwd })).toEqual(found);
  expect(findConfig({ given: 'hostler.json', env, cwd })).toEqual({ file: 'hostler.json', isFoundInFolder: false });
  expect(findConfig({ env, cwd: empty })).toEqual({ file: ofAccount, isFoundInFolder: false });
  expect(findConfig({ env, cwd: path.dirname(ofAccount) })).toEqual({ file: ofAccount, isFoundInFolder: false });
  expect(findConfig({ env: {}, cwd })).toEqual(found);
});

test('E8 a configuration that is a link counts as found in the folder of the link, wherever its target is', () => {
  writeFileSync(ofAccount, '{}');
  const link = path.join(folder, 'linked');
  mkdirSync(link);
  symlinkSync(ofAccount, path.join(link, 'hostler.json'));
  expect(findConfig({ env, cwd: link })).toEqual({ file: path.join(link, 'hostler.json'), isFoundInFolder: true });
});
