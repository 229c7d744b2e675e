import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { parseCommandArgs } from './command.js';
import { exitCodeOf } from './exit-codes.js';
import { worker, workerOptions } from './worker.js';

const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-key-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
let count = 0;
const fileWith = (text: string, mode = 0o600): string => {
  const file = path.join(folder, `key-${count++}`);
  writeFileSync(file, text);
  chmodSync(file, mode);
  return file;
};
const options = (argv: string[], env: NodeJS.ProcessEnv = {}) => workerOptions(parseCommandArgs(worker, argv), env);
const broker = ['--broker', 'ws://127.0.0.1:1/broker'];

test('the key is read from the named file, otherwise from the environment', () => {
  const file = fileWith('of-the-file\n');
  const env = { HOSTLER_KEY_FILE: fileWith('of-the-other-file'), HOSTLER_KEY: 'of-the-environment' };
  expect(options([...broker, '--key-file', file], env)).toEqual({
    ...{ broker: 'ws://127.0.0.1:1/broker', key: 'of-the-file', callMs: 60_000, insecure: false, isJson: false },
  });
  expect(options(broker, env).key).toBe('of-the-other-file');
  expect(options([...broker, '--insecure'], env).insecure).toBe(true);
  expect(options([...broker, '--json', '--timeout=5m'], { HOSTLER_KEY: 'of-the-environment ' })).toMatchObject({
    ...{ key: 'of-the-environment', isJson: true, callMs: 300_000 },
  });
});

test.each([
  ['no broker', [], {}, 2, '--broker is missing'],
  ['no key', broker, {}, 2, '--key-file is missing'],
  ['a key file that does not exist', [...broker, '--key-file', '/nowhere/key'], {}, 1, 'cannot be read (ENOENT)'],
  ['an empty key file', [...broker, '--key-file', fileWith(' \n')], {}, 1, 'is empty'],
  ['a key file with more than a key', [...broker, '--key-file', fileWith('two words')], {}, 1, 'more than one word'],
  ['a key file that others can read', [...broker, '--key-file', fileWith('of-everybody', 0o640)], {}, 1, 'by others'],
  [
    'a key file above the size limit',
    [...broker, '--key-file', fileWith('x'.repeat(5_000))],
    {},
    1,
    'larger than 4096 bytes',
  ],
])('%s is reported without any part of a key', (_what, argv, env, code, message) => {
  let error: unknown;
  try {
    options(argv, env);
  } catch (caught) {
    error = caught;
  }
  expect((error as Error).message).toContain(message);
  expect((error as Error).message).not.toMatch(/two words|xxx/);
  expect(exitCodeOf(error as never)).toBe(code);
});
