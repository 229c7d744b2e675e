import { expect, test } from 'vitest';
import { HostError } from '../../../kernel/errors.js';
import { Mounts } from './mounts.js';
import { sandboxArgs, sandboxedExit, splitEnvironment } from './sandbox.js';

function args(): string {
  const mounts = new Mounts();
  mounts.read('/usr');
  const variables = { LD_PRELOAD: 'x' };
  return sandboxArgs({ file: '/usr/bin/server', args: ['--bind', '/', '/'], cwd: '/srv', mounts, variables }).join(' ');
}

test('the command and its arguments come after the end of the options', () => {
  expect(args()).toMatch(/ -- \/usr\/bin\/server --bind \/ \/$/);
});

test('the file system begins empty, and all namespaces are private and end with Hostler', () => {
  const text = args();
  for (const part of ['--die-with-parent', '--unshare-pid', '--unshare-ipc', '--cap-drop ALL', '--remount-ro /'])
    expect(text).toContain(part);
  expect(text.split(' -- ')[0]).not.toMatch(/bind(?:-try)? \/ |--bind /);
  expect(text).not.toContain('--new-session');
});

test('variables of the dynamic loader are set only inside the sandbox, and no other variable is on the command line', () => {
  const env = { PATH: '/p', LD_PRELOAD: '/a.so', LD_LIBRARY_PATH: '/l', GLIBC_TUNABLES: 'g', TOKEN: 'secret' };
  expect(splitEnvironment(env)).toEqual({
    outside: { PATH: '/p', TOKEN: 'secret' },
    inside: { LD_PRELOAD: '/a.so', LD_LIBRARY_PATH: '/l', GLIBC_TUNABLES: 'g' },
  });
});

const exit = (exitCode: number) =>
  new HostError('transport', 'server exited', { server: 's', reason: 'exit', exitCode });

test('a sandbox that cannot be set up is reported, with the remedy', () => {
  const error = sandboxedExit('s', exit(1), 'bwrap: setting up uid map: Permission denied');
  expect(error.toJSON()).toMatchObject({
    code: 'connect_failed',
    message: "server 's': the sandbox could not be set up: setting up uid map: Permission denied",
    reason: 'sandbox_unavailable',
    field: 'sandbox',
  });
});

test('a command that is not visible in the sandbox is named, with the key that makes it visible', () => {
  const error = sandboxedExit('s', exit(1), 'bwrap: execvp /opt/x: No such file or directory');
  expect(error.toJSON()).toMatchObject({ code: 'connect_failed', reason: 'sandbox_path', field: 'command' });
  expect(error.hint).toContain('"readablePaths"');
});

test('a server that fails by itself gets a hint about hidden files', () => {
  expect(sandboxedExit('s', exit(1), 'Error: ENOENT').hint).toContain('"readablePaths"');
  expect(sandboxedExit('s', exit(0), '').hint).toBeUndefined();
  expect(sandboxedExit('s', exit(1), 'Error: ENOENT').code).toBe('transport');
});
