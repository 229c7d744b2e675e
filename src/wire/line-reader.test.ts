import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { LineReader } from './line-reader.js';

function frame(chunks: Buffer[], maxBytes = 1_000_000, end = true) {
  const lines: string[] = [];
  const tooLong: number[] = [];
  const reader = new LineReader(
    maxBytes,
    (bytes, start, stop) => lines.push(bytes.toString('latin1', start, stop)),
    (bytes) => tooLong.push(bytes),
  );
  for (const chunk of chunks) reader.push(chunk);
  const pendingBytes = reader.pendingBytes;
  if (end) reader.end();
  return { lines, tooLong, pendingBytes };
}

describe('lines', () => {
  test('two lines in one chunk, one line over three chunks, and a last line without its newline', () => {
    const chunks = ['one\ntwo\nth', 'r', 'ee\nhalf'].map((text) => Buffer.from(text));
    expect(frame(chunks).lines).toEqual(['one', 'two', 'three', 'half']);
  });

  test('however the bytes are cut, the lines are the same', () => {
    const text = fc.array(fc.constantFrom('a', '\n', '\r\n', 'é', '\u{1f600}', '{"x":1}'), { maxLength: 60 });
    fc.assert(
      fc.property(text, fc.array(fc.nat(200)), (parts, cuts) => {
        const bytes = Buffer.from(parts.join(''));
        const at = [...new Set([0, ...cuts.filter((cut) => cut < bytes.length), bytes.length])].sort((a, b) => a - b);
        const chunks = at.slice(1).map((to, i) => bytes.subarray(at[i], to));
        expect(frame(chunks).lines).toEqual(frame([bytes]).lines);
      }),
    );
  });

  test('a line of many chunks is put together whole', () => {
    const long = 'x'.repeat(200_000);
    const bytes = Buffer.from(`${long}\nshort\n`);
    const chunks = Array.from({ length: Math.ceil(bytes.length / 999) }, (_, i) =>
      bytes.subarray(i * 999, i * 999 + 999),
    );
    expect(frame(chunks).lines).toEqual([long, 'short']);
  });
});

describe('W14 a line that is too long', () => {
  const line = `HEAD${'x'.repeat(4_000)}TAIL`;
  /** The report about the line, whose bytes come in chunks of this size. */
  const edges = (chunkBytes: number, text = `ok\n${line}\nnext\n`, maxBytes = 1_000) => {
    const seen: string[] = [];
    const reader = new LineReader(
      maxBytes,
      (bytes, start, stop) => seen.push(bytes.toString('latin1', start, stop)),
      (_bytes, head) => {
        seen.push(head.toString('latin1'));
        reader.onTail((tail) => seen.push(tail.toString('latin1')));
      },
    );
    const bytes = Buffer.from(text);
    for (let at = 0; at < bytes.length; at += chunkBytes) reader.push(bytes.subarray(at, at + chunkBytes));
    reader.end();
    return seen;
  };

  test.each([1, 7, 100, 999, 5_000])('is reported by its first and last 256 bytes, in chunks of %d bytes', (size) => {
    expect(edges(size)).toEqual(['ok', line.slice(0, 256), line.slice(-256), 'next']);
  });

  test('without an end is read up to a bound, and then has no last bytes', () => {
    expect(edges(100, `HEAD${'x'.repeat(10_000)}\n`)).toEqual([`HEAD${'x'.repeat(252)}`, '']);
  });
});

describe('the bound', () => {
  test('a line of exactly the limit passes; a longer one is reported once, and the line after it is read', () => {
    expect(frame([Buffer.from('12345\n')], 5)).toMatchObject({ lines: ['12345'], tooLong: [] });
    expect(frame([Buffer.from('ok\n123456\nnext\n')], 5)).toMatchObject({ lines: ['ok', 'next'], tooLong: [6] });
    expect(
      frame(
        ['123', '456', '7\n', 'next\n'].map((text) => Buffer.from(text)),
        5,
      ),
    ).toMatchObject({
      lines: ['next'],
      tooLong: [6],
    });
  });

  test('buffered bytes are released when the limit is passed', () => {
    expect(frame([Buffer.alloc(600, 'x'), Buffer.alloc(600, 'x')], 1_000, false).pendingBytes).toBe(0);
  });
});
