/** Measures real time, and so stands apart from the unit tests of the parser. */
import { expect, test } from 'vitest';
import { SseParser } from '../../src/transports/http/sse-parser.js';

test('single bytes cost the same however much is waiting', () => {
  const feed = (count: number) => {
    const parser = new SseParser(
      1e9,
      () => {},
      () => {},
    );
    parser.push(Buffer.from('data: '));
    const byte = Buffer.from('a');
    const startMs = performance.now();
    for (let i = 0; i < count; i++) parser.push(byte);
    return performance.now() - startMs;
  };
  const small = Math.min(feed(100_000), feed(100_000), feed(100_000));
  // Eight times the bytes; quadratic work would take 64 times as long.
  expect(Math.min(feed(800_000), feed(800_000))).toBeLessThan(small * 32 + 50);
});
