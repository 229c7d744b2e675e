/** Text designed to be slow costs the redaction no more per character than other text. */
import { expect, test } from 'vitest';
import { createRedactor } from '../../src/kernel/redact.js';
import { countFor, timeLimitMs } from '../tier.js';

const hostile = [
  '-eyJ',
  'eyJ',
  '-----BEGIN PRIVATE KEY-----',
  '//',
  '//a',
  'key=',
  'authorization:',
  'bearer ',
  '-sk-',
  'ghp_',
  '=',
  '"token":',
];

test.each(hostile)('%j, over and over', (unit) => {
  const { redact } = createRedactor(['some known value']);
  const text = unit.repeat(1024 * 1024).slice(0, 1024 * 1024);
  // The best of three: another process may slow down one run, not all. A quadratic pattern needs minutes.
  const bestMs = Math.min(
    ...Array.from({ length: countFor(1, 3) }, () => {
      const startedMs = performance.now();
      redact(text);
      return performance.now() - startedMs;
    }),
  );
  expect(bestMs).toBeLessThan(timeLimitMs(600));
});
