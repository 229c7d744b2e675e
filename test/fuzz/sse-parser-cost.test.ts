/** Measures real time, and so stands apart from the unit tests of the parser. */
import { expect, test } from 'vitest';
import { SseParser } from '../../src/transports/http/sse-parser.js';
import { timeLimitMs } from '../tier.js';

test('single bytes cost the same however much is waiting', () => {
  const parser = new SseParser(
    1e9,
    () => {},
    () => {},
  );
  parser.push(Buffer.from('data: '));
  const byte = Buffer.from('a');
  const startMs = performance.now();
  // Copying what waits with each of them would move 1.3 TB.
  for (let i = 0; i < 1_600_000; i++) parser.push(byte);
  expect(performance.now() - startMs).toBeLessThan(timeLimitMs(1_000));
});
