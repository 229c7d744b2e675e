import { expect, test } from 'vitest';
import { type ChannelEnd, channelEndError, frameError } from './channel-end-errors.js';

const exit = { exitCode: 4, signal: undefined, atMs: 0 };
const endings: ChannelEnd[] = ['exit', 'stdin_closed', 'stdout_closed', 'frame_too_large', 'closed'];

test.each(endings)('the error for %s names the server, and quotes its last line on stderr', (ending) => {
  const error = channelEndError('files', ending, exit, 'no key given');
  expect(error.message).toMatch(/^server 'files' .*[^.]$/);
  expect(error.details).toMatchObject({ server: 'files', reason: ending, execution: 'uncertain' });
  if (ending !== 'frame_too_large') expect(error.message).toMatch(/; last line on stderr: no key given$/);
});

test.each([
  ['queued', 'not_executed', "server 'files' exited with code 4 before the request was sent"],
  ['writing', 'uncertain', "server 'files' exited with code 4 while the request was being sent"],
] as const)('a frame in the phase "%s" is %s', (phase, execution, message) => {
  const error = frameError('files', 'exit', exit, phase);
  expect(error.message).toBe(message);
  expect(error.details).toMatchObject({ phase, execution, exitCode: 4 });
});
