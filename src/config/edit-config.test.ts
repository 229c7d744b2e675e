import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  linkSync,
  lstatSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { withEditLock } from '../kernel/edit-lock.js';
import { editConfigFile } from './edit-config.js';

let folder: string;
let file: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'edit-config-'));
  file = path.join(folder, 'hostler.json');
  writeFileSync(file, '{ "a": 1 }\n');
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const read = () => JSON.parse(readFileSync(file, 'utf8')) as unknown;
const lock = () => path.join(folder, '.hostler.json.lock');
const lockOf = (pid: number) => `${pid} ${'0'.repeat(16)} ${hostname()}\n`;

test('the file behind a link is changed, and the link remains', () => {
  const link = path.join(folder, 'link.json');
  symlinkSync('hostler.json', link);
  editConfigFile(link, ['a'], 2);
  expect([lstatSync(link).isSymbolicLink(), read()]).toEqual([true, { a: 2 }]);
  expect(readdirSync(folder).sort()).toEqual(['hostler.json', 'link.json']);
});

test('owner and mode stay, for any user and umask', () => {
  const [uid = 0, gid = 0] = [process.getuid?.(), process.getgid?.()];
  // Only root can change the owner.
  const owner = uid === 0 ? { uid: 4_321, gid: 4_322 } : { uid, gid };
  chownSync(file, owner.uid, owner.gid);
  chmodSync(file, 0o666);
  editConfigFile(file, ['a'], 2);
  const { mode, ...facts } = statSync(file);
  expect({ ...facts, mode: mode & 0o777 }).toMatchObject({ ...owner, mode: 0o666 });
});

test('a file with a second hard link is not changed', () => {
  linkSync(file, path.join(folder, 'second.json'));
  expect(() => editConfigFile(file, ['a'], 2)).toThrow(expect.objectContaining({ code: 'invalid_spec' }));
  expect([read(), readdirSync(folder).sort()]).toEqual([{ a: 1 }, ['hostler.json', 'second.json']]);
});

test('a change that the check refuses is not made, and no other command changes the file during the check', () => {
  const check = (config: unknown) => {
    expect(config).toEqual({ a: 1 });
    expect(() => withEditLock(file, () => {}, 1)).toThrow('another command');
    throw new RangeError('no');
  };
  expect(() => editConfigFile(file, ['a'], 2, check)).toThrow('cannot be written');
  expect([read(), readdirSync(folder)]).toEqual([{ a: 1 }, ['hostler.json']]);
});

test('a lock of a process that has ended is taken over', () => {
  const { pid } = spawnSync(process.execPath, ['--version']);
  writeFileSync(lock(), lockOf(pid));
  editConfigFile(file, ['a'], 2);
  expect([read(), readdirSync(folder)]).toEqual([{ a: 2 }, ['hostler.json']]);
});

test.each([
  ['of a process that runs', lockOf(process.pid)],
  ['of a process of another machine', `1 ${'0'.repeat(16)} another.${hostname()}\n`],
  ['that does not name its process', ''],
])('with a lock %s the command fails after a wait, and the lock remains', (_what, text) => {
  writeFileSync(lock(), text);
  const never = () => expect.unreachable();
  expect(() => withEditLock(file, never, 2)).toThrow(
    expect.objectContaining({ code: 'invalid_spec', message: expect.stringContaining(lock()) }),
  );
  expect(readFileSync(lock(), 'utf8')).toBe(text);
});
