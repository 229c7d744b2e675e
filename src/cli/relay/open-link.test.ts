import { chmodSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { createServer } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../kernel/clock.js';
import { isRefusedBySystem, openLink } from './open-link.js';

const hello = { hostler: 1, version: '1.0.0', client: 'abc', config: '/a', env: { TOKEN: 'secret' }, options: {} };

test('a socket in a folder that other users may write to gets no hello', async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-link-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const file = path.join(folder, 'stdio.sock');
  let connections = 0;
  const server = createServer((socket) => {
    connections++;
    socket.end();
  });
  await new Promise<void>((resolve) => server.listen(file, resolve));
  onTestFinished(() => void server.close());
  chmodSync(folder, 0o777);
  await expect(openLink(file, hello, systemClock)).rejects.toThrow('cannot be trusted');
  expect(connections).toBe(0);
  chmodSync(folder, 0o700);
  expect(await openLink(file, hello, systemClock)).toEqual({ kind: 'stopping' });
});

test('R1 a socket that cannot be connected to, for whatever reason, makes the process serve its client itself', async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-link-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const loop = path.join(folder, 'stdio.sock');
  symlinkSync(loop, loop);
  expect(await openLink(loop, hello, systemClock)).toEqual({ kind: 'unreachable', code: 'ELOOP' });
  expect(await openLink(path.join(folder, 'absent'), hello, systemClock)).toEqual({ kind: 'absent' });
});

test('R1 error codes of sandboxes and unusual file systems are refusals; codes of a host that is absent, ending or busy are not', () => {
  const codes = (text: string) => text.split(' ').filter(isRefusedBySystem);
  const refusals = 'EACCES EPERM EROFS ENOTSUP EOPNOTSUPP EAFNOSUPPORT EINVAL ENOSYS EIO ENXIO';
  expect(codes(refusals)).toEqual(refusals.split(' '));
  expect(
    codes('ENOENT ECONNREFUSED ECONNRESET EPIPE EAGAIN EMFILE ENFILE EADDRINUSE unknown others_may_write'),
  ).toEqual([]);
  expect(isRefusedBySystem(undefined)).toBe(false);
});
