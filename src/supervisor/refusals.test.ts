import { expect, test } from 'vitest';
import { FakeClock } from '../kernel/fake-clock.js';
import { unexpectedError } from './refusals.js';
import { Run } from './run.js';
import { StartGate } from './start-gate.js';

test('E18 an unexpected error has the thrown error as text and cause, without secrets', () => {
  const cause = new TypeError('Invalid URL: https://x/?token=abcdef123456\u001b[2J');
  const error = unexpectedError('docs', cause, (text) => text.replace('Invalid', 'Wrong'));
  expect(error.message).toContain("server 'docs' could not be opened: unexpected error: TypeError: Wrong URL");
  expect(error.message).toContain('\\u{1b}[2J');
  expect([error.cause, error.code, error.details.reason]).toEqual([cause, 'connect_failed', 'unexpected']);
  expect(unexpectedError('docs', cause).message).toMatch(/unexpected error: TypeError$/);
});

test.each([
  ['a text', 'boom', 'boom'],
  ['nothing', undefined, 'undefined'],
  ['something that cannot be written', Object.create(null), 'object'],
  ['an error without texts', Object.assign(new Error('x'), { name: Object.create(null), message: {} }), 'object: .*'],
])('E18 an unexpected error can be made from %s', (_name, thrown, text) => {
  expect(unexpectedError('docs', thrown, String).message).toMatch(new RegExp(`unexpected error: ${text}$`));
});

test('E18 a run that fails with an unexpected error reports the cause of the error', async () => {
  const clock = new FakeClock();
  const failures: unknown[] = [];
  const ignore = () => {};
  const listener = { opened: ignore, lost: ignore, closed: ignore, closeFailed: ignore };
  const run = new Run('docs', { ...listener, failed: (error) => failures.push(error) });
  run.open(1, new StartGate(clock), () => Promise.reject(new TypeError('Invalid URL')));
  await clock.advanceAsync(0);
  expect(failures).toMatchObject([
    {
      message: "server 'docs' could not be opened: unexpected error: TypeError",
      cause: { message: 'Invalid URL' },
    },
  ]);
});
