import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { PassThrough } from 'node:stream';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { parseCommandArgs } from './command.js';
import { key } from './key.js';
import { TrustedSource } from './trust/trusted-source.js';
import { confirmFile, trust } from './trust.js';

let folder: string;
let file: string;
let printed: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-command-'));
  file = path.join(folder, 'hostler.json');
  writeFileSync(file, '{ "mcpServers": { "a": { "command": "x" } } }');
  printed = '';
  vi.stubEnv('HOSTLER_DATA_DIR', path.join(folder, 'data'));
  const print = (text: unknown) => {
    printed += String(text);
    return true;
  };
  vi.spyOn(process.stdout, 'write').mockImplementation(print);
  vi.spyOn(process.stderr, 'write').mockImplementation(print);
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

function run(argv: readonly string[], typed?: string): Promise<number> {
  const isTTY = typed !== undefined;
  const input = Object.assign(new PassThrough(), { isTTY });
  const output = Object.assign(new PassThrough(), { isTTY });
  input.end(typed ?? '');
  return confirmFile(parseCommandArgs(trust, argv), { input, output });
}

const opens = () =>
  new TrustedSource({ file, isFoundInFolder: true }, process.env)
    .open(() => Promise.reject(new Error('asked')))
    .then(
      () => true,
      () => false,
    );

test('E8 hostler trust shows what the file would run, and confirms it with --yes or at a terminal', async () => {
  await expect(run([file])).rejects.toMatchObject({
    details: { reason: 'usage' },
    hint: expect.stringContaining('--yes'),
  });
  expect([printed.includes('runs     x'), await opens()]).toEqual([true, false]);
  expect([await run([file], 'n\n'), await opens()]).toEqual([1, false]);
  expect([await run([file], 'y\n'), await opens()]).toEqual([0, true]);
  expect([await run([file]), printed.includes('is already confirmed')]).toEqual([0, true]);
  writeFileSync(file, '{ "mcpServers": { "a": { "command": "y" } } }');
  expect([await opens(), await run([file, '--yes']), await opens()]).toEqual([false, 0, true]);
});

test('the hint for a missing file names no option, since this command takes the file as an argument', async () => {
  await expect(run([path.join(folder, 'none.json')])).rejects.toMatchObject({
    message: expect.stringContaining('none.json does not exist'),
    hint: 'create it, or name another file',
  });
});

test('E8 confirmations are listed and withdrawn', async () => {
  await run([file, '--yes']);
  printed = '';
  await run(['--list', '--json']);
  const entry = { file, folder, uid: process.getuid?.(), at: expect.any(String) };
  expect(JSON.parse(printed)).toEqual({ v: 1, files: [entry] });
  expect([await run(['--remove', file]), await run(['--remove', file]), await opens()]).toEqual([0, 1, false]);
});

test('with --json hostler trust never asks, and prints whether the file is confirmed', async () => {
  const answered = async (...argv: string[]) => {
    printed = '';
    const code = await run([file, '--json', ...argv]);
    const { isConfirmed, parts } = JSON.parse(printed.split('\n')[0] ?? '') as {
      isConfirmed: boolean;
      parts: unknown[];
    };
    return [code, isConfirmed, parts.length > 0];
  };
  expect(await answered()).toEqual([1, false, true]);
  expect(await answered('--yes')).toEqual([0, true, true]);
  expect(await answered()).toEqual([0, true, true]);
});

test.each([[['--list', '--yes']], [['--list', 'x']], [['--remove', '--yes']]])('%j is wrong usage', async (argv) => {
  await expect(run(argv)).rejects.toMatchObject({ details: { reason: 'usage' } });
});

test('a file that cannot be read is not confirmed', async () => {
  writeFileSync(file, '{');
  await expect(run([file, '--yes'])).rejects.toMatchObject({ code: 'invalid_spec', details: { reason: 'syntax' } });
  await expect(run([path.join(folder, 'none.json'), '--yes'])).rejects.toThrow('does not exist');
});

test('E8 a key that a command adds to a confirmed file is confirmed, and confirms nothing else', async () => {
  const add = (name: string) => key.run(parseCommandArgs(key, ['add', name, '--config', file]));
  await add('early');
  expect(await opens()).toBe(false);
  await run([file, '--yes']);
  await add('ann');
  expect(await opens()).toBe(true);
  await key.run(parseCommandArgs(key, ['revoke', 'ann', '--config', file]));
  expect(await opens()).toBe(true);
});
