import { expect, test } from 'vitest';
import { Mounts } from './sandbox/mounts.js';
import { sandboxArgs, splitEnvironment } from './sandbox.js';

function args(): string {
  const mounts = new Mounts();
  mounts.read('/usr');
  const variables = { LD_PRELOAD: 'x' };
  return sandboxArgs({ file: '/usr/bin/server', args: ['--bind', '/', '/'], cwd: '/srv', mounts, variables }).join(' ');
}

test('the command and its arguments come after the end of the options', () => {
  expect(args()).toMatch(/ -- \/usr\/bin\/server --bind \/ \/$/);
});

test('the file system begins empty, and everything is private and bound to our life', () => {
  const text = args();
  for (const part of ['--die-with-parent', '--unshare-pid', '--unshare-ipc', '--cap-drop ALL', '--remount-ro /'])
    expect(text).toContain(part);
  expect(text.split(' -- ')[0]).not.toMatch(/bind(?:-try)? \/ |--bind /);
  expect(text).not.toContain('--new-session');
});

test('variables of the dynamic loader act inside only, and no other stands on the command line', () => {
  const env = { PATH: '/p', LD_PRELOAD: '/a.so', LD_LIBRARY_PATH: '/l', GLIBC_TUNABLES: 'g', TOKEN: 'secret' };
  expect(splitEnvironment(env)).toEqual({
    outside: { PATH: '/p', TOKEN: 'secret' },
    inside: { LD_PRELOAD: '/a.so', LD_LIBRARY_PATH: '/l', GLIBC_TUNABLES: 'g' },
  });
});
