import { describe, expect, test } from 'vitest';
import { isBundle, readRequests, readResults, writeRequests, writeResults } from './nats-bundle.js';

const body = (text: string) => Buffer.from(text);

describe('what is written is read', () => {
  test('requests with their time, results with their bytes, also empty and with any bytes in them', () => {
    const requests = [
      { id: 'a', body: body('{"text":"naïve 日本語"}'), ttlMs: 1 },
      { id: 'B_-9', body: body(''), ttlMs: 86_400_000 },
      { id: '__proto__', body: body('\n*a 1 1\n'), ttlMs: 0 },
    ];
    const written = writeRequests(requests);
    expect(isBundle(written)).toBe(true);
    expect(readRequests(written)).toEqual(requests);
    const results = requests.map(({ id, body }) => ({ id, body }));
    expect(readResults(writeResults(results))).toEqual(results);
  });

  test('a time is whole, and within its bounds', () => {
    const sent = [-5, 0.2, 1e12].map((ttlMs, n) => ({ id: `n${n}`, body: body('{}'), ttlMs }));
    expect(readRequests(writeRequests(sent))?.map(({ ttlMs }) => ttlMs)).toEqual([0, 1, 86_400_000]);
  });
});

describe('what a worker may have written instead', () => {
  const head = (count: number) => Array.from({ length: count }, (_, n) => `k${n} 2 1000`).join(',');
  test.each([
    ['nothing', ''],
    ['a request alone', '1000\n{}'],
    ['no line end', '*a 2 1000{}'],
    ['an empty line', '*\n{}'],
    ['no size', '*a\n{}'],
    ['no time', '*a 2\n{}'],
    ['more than it says', '*a 2 1000\n{}{}'],
    ['less than it says', '*a 4 1000\n{}'],
    ['the rest of the memory', '*a 999999999 1000\n{}'],
    ['a negative size', '*a -2 1000,b 4 1000\n{}'],
    ['a size that is no number', '*a 0x2 1000\n{}'],
    ['one id twice', '*a 2 1000,a 2 1000\n{}{}'],
    ['an id that would be two tokens of a subject', '*a.b 2 1000\n{}'],
    ['an id with a wildcard', '*> 2 1000\n{}'],
    ['an id of too many characters', `*${'a'.repeat(129)} 2 1000\n{}`],
    ['another field', '*a 2 1000 7\n{}'],
    ['too many', `*${head(65)}\n${'{}'.repeat(65)}`],
    ['a line without end', `*${'a'.repeat(20_000)}\n`],
  ])('%s is not read', (_what, text) => {
    expect(readRequests(body(text))).toBeUndefined();
  });

  test('as many as there may be are read', () => {
    expect(readRequests(body(`*${head(64)}\n${'{}'.repeat(64)}`))?.length).toBe(64);
  });

  test.each(['*a 2 1000\n{}', '*a 2,b 3\n{}', '*a 2,a 2\n{}{}', '{}'])('%j is no record', (text) => {
    expect(readResults(body(text))).toBeUndefined();
  });
});
