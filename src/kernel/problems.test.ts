import { expect, onTestFinished, test } from 'vitest';
import { type Report, withoutThrowing } from './problems.js';

test('a report that throws or rejects has no effect, and is made once', async () => {
  const unhandled: unknown[] = [];
  const note = (error: unknown) => unhandled.push(error);
  process.on('unhandledRejection', note);
  onTestFinished(() => void process.off('unhandledRejection', note));
  const told: unknown[] = [];
  const failing = (error: unknown) => {
    told.push(error);
    throw new Error('full disk');
  };
  withoutThrowing(failing)(1);
  const later: unknown = async (error: unknown) => failing(error);
  withoutThrowing(later as Report)(2);
  await new Promise((resolve) => setImmediate(resolve));
  expect([told, unhandled]).toEqual([[1, 2], []]);
});
