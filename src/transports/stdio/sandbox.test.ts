import { expect, test } from 'vitest';
import { sandboxArgs } from './sandbox.js';

const args = (more: Partial<Parameters<typeof sandboxArgs>[0]> = {}) =>
  sandboxArgs({ file: '/usr/bin/server', args: ['--bind', '/', '/'], cwd: '/srv', writablePaths: [], ...more }).join(
    ' ',
  );

test('the command and its arguments come after the end of the options', () => {
  expect(args()).toMatch(/ -- \/usr\/bin\/server --bind \/ \/$/);
});

test('everything is read-only, private and bound to our life', () => {
  const text = args();
  for (const part of [
    '--die-with-parent',
    '--unshare-pid',
    '--cap-drop ALL',
    '--ro-bind / /',
    '--tmpfs /tmp',
    '--proc /proc',
  ])
    expect(text).toContain(part);
  expect(text.split(' -- ')[0]).not.toContain('--bind /');
  expect(text).not.toContain('--new-session');
});

test('declared paths are writable, and lie over the private /tmp', () => {
  const text = args({ writablePaths: ['/data', '/tmp/work'] });
  expect(text).toContain('--bind /data /data --bind /tmp/work /tmp/work');
  expect(text.indexOf('--bind /tmp/work')).toBeGreaterThan(text.indexOf('--tmpfs /tmp'));
});

test('a server that lies below /tmp still finds itself', () => {
  const text = args({ file: '/tmp/app/server', cwd: '/tmp/app' });
  expect(text).toContain('--ro-bind /tmp/app/server /tmp/app/server --ro-bind /tmp/app /tmp/app');
  expect(args({ cwd: '/tmp' })).not.toContain('--ro-bind /tmp ');
});
