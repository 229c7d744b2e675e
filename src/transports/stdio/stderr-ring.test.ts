import { expect, test } from 'vitest';
import { StderrRing } from './stderr-ring.js';

const same = (text: string) => text;
const noon = () => 0;

test('a text that fits is returned whole', () => {
  const ring = new StderrRing(16, same, noon);
  ring.push(Buffer.from('one\n'));
  ring.push(Buffer.from('two\n'));
  expect(ring.tail()).toBe('one\ntwo\n');
});

test('without output the tail is empty', () => {
  expect(new StderrRing(16, same, noon).tail()).toBe('');
  expect(new StderrRing(16, same, noon).crashLine(10)).toBe('');
});

test('the first line is left out when its beginning was overwritten', () => {
  const ring = new StderrRing(10, same, noon);
  ring.push(Buffer.from('token=secret\nok\n'));
  expect(ring.tail()).toBe('ok\n');
});

test('no part of a line longer than the ring is shown', () => {
  const ring = new StderrRing(8, same, noon);
  ring.push(Buffer.from('a'.repeat(100)));
  expect(ring.tail()).toBe('');
});

test('the text is redacted when it is read', () => {
  const ring = new StderrRing(64, (text) => text.replaceAll('sk-1', '[REDACTED]'), noon);
  ring.push(Buffer.from('key sk-1\n\n'));
  expect(ring.crashLine(80)).toBe('key [REDACTED]');
});

test('the ring equals the end of everything written, however it was cut into chunks', () => {
  const everything: string[] = [];
  const ring = new StderrRing(64, same, noon);
  for (let i = 0; i < 500; i++) {
    const text = `${i}:${'x'.repeat((i * 7) % 90)}\n`;
    everything.push(text);
    ring.push(Buffer.from(text));
    const kept = everything.join('').slice(-64);
    const whole = everything.join('').length <= 64;
    expect(ring.tail()).toBe(whole ? kept : kept.slice(kept.indexOf('\n') + 1));
  }
});

/** Each text with the time at which it was written. */
function written(capacity: number, texts: readonly (readonly [string, number])[], redact = same): StderrRing {
  let nowMs = 0;
  const ring = new StderrRing(capacity, redact, () => nowMs);
  for (const [text, atMs] of texts) {
    nowMs = atMs;
    ring.push(Buffer.from(text));
  }
  nowMs = 1e9;
  return ring;
}
const shown = (ring: StderrRing, maxBytes?: number) => ring.lines(maxBytes).map(({ text, atMs }) => [text, atMs]);

test('a line has the arrival time of its first byte', () => {
  const chunks = [
    ['one\ntw', 10],
    ['o\n', 20],
    ['three\nhalf', 30],
  ] as const;
  const lines = [
    ['one', 10],
    ['two', 10],
    ['three', 30],
  ];
  expect(shown(written(64, chunks))).toEqual(lines);
  expect(shown(written(64, chunks), 15)).toEqual(lines.slice(1));
  expect(shown(written(12, chunks))).toEqual(lines.slice(2));
  expect(shown(written(64, [['all\n\n', 5]]))).toEqual([
    ['all', 5],
    ['', 5],
  ]);
  expect(shown(written(64, []))).toEqual([]);
});

test('an incomplete last line is shown after the end only, because a secret may be cut', () => {
  const redact = (text: string) => text.replaceAll('hunter2', '[REDACTED]');
  const ring = written(64, [['one\nthe password is hunt', 10]], redact);
  expect([ring.tail(), shown(ring)]).toEqual(['one\n', [['one', 10]]]);
  ring.push(Buffer.from('er2'));
  expect(ring.tail()).toBe('one\n');
  ring.end();
  expect(ring.tail()).toBe('one\nthe password is [REDACTED]');
  expect(shown(ring)).toEqual([
    ['one', 10],
    ['the password is [REDACTED]', 10],
  ]);
});

test('after a secret of several lines, each line still has its own time', () => {
  const chunks = [
    ['a\n', 10],
    ['KEY\nKEY\nKEY\n', 20],
    ['b\n', 30],
  ] as const;
  const redact = (text: string) => text.replace('KEY\nKEY\nKEY', '[REDACTED]');
  expect(shown(written(64, chunks, redact)).slice(1)).toEqual([
    ['[REDACTED]', 20],
    ['b', 30],
  ]);
});

test('many small writes store few arrival times; no line gets a later time than its own, and the newest line has the exact time', () => {
  const ring = written(
    4_096,
    Array.from({ length: 20_000 }, (_, i) => [`${i}\n`, i * 10] as const),
  );
  const lines = ring.lines();
  for (const { text, atMs } of lines) expect(Number(text) * 10 - atMs).toBeGreaterThanOrEqual(0);
  for (const { text, atMs } of lines) expect(Number(text) * 10 - atMs).toBeLessThanOrEqual(40);
  expect(lines.at(-1)).toEqual({ text: '19999', atMs: 199_990 });
});
