import { expect, test } from 'vitest';
import { StderrRing } from './stderr-ring.js';

const same = (text: string) => text;

test('a text that fits is returned whole', () => {
  const ring = new StderrRing(16, same);
  ring.push(Buffer.from('one\n'));
  ring.push(Buffer.from('two\n'));
  expect(ring.tail()).toBe('one\ntwo\n');
});

test('without output the tail is empty', () => {
  expect(new StderrRing(16, same).tail()).toBe('');
  expect(new StderrRing(16, same).crashLine(10)).toBe('');
});

test('the first line is left out when its beginning is gone', () => {
  const ring = new StderrRing(10, same);
  ring.push(Buffer.from('token=secret\nok\n'));
  expect(ring.tail()).toBe('ok\n');
});

test('a line longer than the ring is not shown in part', () => {
  const ring = new StderrRing(8, same);
  ring.push(Buffer.from('a'.repeat(100)));
  expect(ring.tail()).toBe('');
});

test('the text is redacted when it is read', () => {
  const ring = new StderrRing(64, (text) => text.replaceAll('sk-1', '[REDACTED]'));
  ring.push(Buffer.from('key sk-1\n\n'));
  expect(ring.crashLine(80)).toBe('key [REDACTED]');
});

test('the ring equals the end of everything written, however it was cut into chunks', () => {
  const everything: string[] = [];
  const ring = new StderrRing(64, same);
  for (let i = 0; i < 500; i++) {
    const text = `${i}:${'x'.repeat((i * 7) % 90)}\n`;
    everything.push(text);
    ring.push(Buffer.from(text));
    const kept = everything.join('').slice(-64);
    const whole = everything.join('').length <= 64;
    expect(ring.tail()).toBe(whole ? kept : kept.slice(kept.indexOf('\n') + 1));
  }
});
