import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { resolveCommand } from './command.js';

let dir: string;
beforeAll(() => {
  dir = mkdtempSync(path.join(tmpdir(), 'hostler-command-'));
  for (const folder of ['one', 'two', 'one/asFolder']) mkdirSync(path.join(dir, folder));
  for (const [name, mode] of [
    ['two/tool', 0o755],
    ['one/plain', 0o644],
    ['two/plain', 0o755],
    ['one/onlyPlain', 0o644],
    ['two/asFolder', 0o755],
  ] as const) {
    writeFileSync(path.join(dir, name), '#!/bin/sh\n');
    chmodSync(path.join(dir, name), mode);
  }
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

const find = (command: string, more: { cwd?: string; PATH?: string } = {}) =>
  resolveCommand({
    server: 'files',
    command,
    cwd: more.cwd ?? dir,
    env: { PATH: more.PATH ?? `${dir}/none:${dir}/one:${dir}/two` },
  });

test.each([
  ['a name is searched on the PATH', 'tool', 'two/tool'],
  ['a file without execute permission is skipped', 'plain', 'two/plain'],
  ['a folder of that name is skipped', 'asFolder', 'two/asFolder'],
  ['a relative path starts at the working directory', './two/tool', 'two/tool'],
])('%s', async (_name, command, expected) => {
  expect(await find(command)).toBe(path.join(dir, expected));
});

test('an absolute path is used unchanged, also without a PATH', async () => {
  expect(await find('/bin/sh', { PATH: '' })).toBe('/bin/sh');
});

test.each([
  ['nowhere', 'ENOENT'],
  ['./nowhere', 'ENOENT'],
  ['onlyPlain', 'EACCES'],
  ['./one/onlyPlain', 'EACCES'],
  ['./two/tool/inside', 'ENOTDIR'],
])('the command %s is refused as %s, with a hint', async (command, reason) => {
  const error = await find(command).catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({
    code: 'connect_failed',
    message: expect.stringMatching(/^server 'files': .*[^.]$/),
    details: { server: 'files', reason, field: 'command', execution: 'not_executed' },
    hint: expect.stringMatching(/^[a-z].*[^.]$/),
    retryable: true,
  });
  expect((error as Error).message).toContain(command);
});

test.each([
  ['gone', 'ENOENT'],
  ['two/tool', 'ENOTDIR'],
])('the working directory "%s" is refused as %s', async (cwd, reason) => {
  await expect(find('tool', { cwd: path.join(dir, cwd) })).rejects.toMatchObject({
    code: 'connect_failed',
    details: { reason, field: 'cwd' },
    hint: expect.stringContaining('cwd'),
  });
});
