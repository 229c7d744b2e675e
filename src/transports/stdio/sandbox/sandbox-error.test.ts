import { expect, test } from 'vitest';
import { HostError } from '../../../kernel/errors.js';
import { sandboxedExit } from './sandbox-error.js';

const exit = (exitCode: number) =>
  new HostError('transport', 'server exited', { server: 's', reason: 'exit', exitCode });

test('a sandbox that cannot be set up is named, with the way out', () => {
  const error = sandboxedExit('s', exit(1), 'bwrap: setting up uid map: Permission denied');
  expect(error.toJSON()).toMatchObject({
    code: 'connect_failed',
    message: "server 's': the sandbox could not be set up: setting up uid map: Permission denied",
    reason: 'sandbox_unavailable',
    field: 'sandbox',
  });
});

test('a command that is not visible inside is named, with the key that shows it', () => {
  const error = sandboxedExit('s', exit(1), 'bwrap: execvp /opt/x: No such file or directory');
  expect(error.toJSON()).toMatchObject({ code: 'connect_failed', reason: 'sandbox_path', field: 'command' });
  expect(error.hint).toContain('"readablePaths"');
});

test('a server that fails by itself is hinted at what it may be missing', () => {
  expect(sandboxedExit('s', exit(1), 'Error: ENOENT').hint).toContain('"readablePaths"');
  expect(sandboxedExit('s', exit(0), '').hint).toBeUndefined();
  expect(sandboxedExit('s', exit(1), 'Error: ENOENT').code).toBe('transport');
});
