import { chmodSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { createServer } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../kernel/clock.js';
import { openLink } from './open-link.js';

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

test('a socket that cannot be connected to is a failed try', async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-link-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const loop = path.join(folder, 'stdio.sock');
  symlinkSync(loop, loop);
  expect(await openLink(loop, hello, systemClock)).toMatchObject({
    kind: 'failed',
    reason: expect.stringContaining('ELOOP'),
  });
});
