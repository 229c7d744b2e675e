/** Measures real time, so it is separate from the unit tests of the parser. */
import { expect, test } from 'vitest';
import { SseParser } from '../../src/transports/http/sse-parser.js';
import { timeLimitMs } from '../tier.js';

test('a single byte costs the same for any amount of buffered data', () => {
  const parser = new SseParser(
    1e9,
    () => {},
    () => {},
  );
  parser.push(Buffer.from('data: '));
  const byte = Buffer.from('a');
  const startMs = performance.now();
  // Copying the buffer for each byte would move 1.3 TB.
  for (let i = 0; i < 1_600_000; i++) parser.push(byte);
  expect(performance.now() - startMs).toBeLessThan(timeLimitMs(1_000));
});
