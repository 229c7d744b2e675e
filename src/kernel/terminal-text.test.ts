import { describe, expect, test } from 'vitest';
import { seededRandom } from './random.js';
import { neutralise, neutraliseLine } from './terminal-text.js';

/** Independent of the tested pattern: characters that could deceive a terminal or a reader. */
function isHarmful(point: number): boolean {
  if (point === 0x0a || point === 0x09) return false;
  if (point < 0x20 || (point >= 0x7f && point <= 0x9f)) return true;
  if (point >= 0x202a && point <= 0x202e) return true;
  if (point >= 0x2066 && point <= 0x2069) return true;
  if (point >= 0xe0000 && point <= 0xe007f) return true;
  return (
    [0x200e, 0x200f, 0x061c, 0x200b, 0x2028, 0x2029, 0xfeff].includes(point) || (point >= 0xd800 && point <= 0xdfff)
  );
}

describe('X13 text from outside cannot control a terminal', () => {
  test.each([
    ['\u001b[31mred\u001b[0m', '\\u{1b}[31mred\\u{1b}[0m'],
    ['\u001b]0;title\u0007', '\\u{1b}]0;title\\u{7}'],
    ['a\u202eb', 'a\\u{202e}b'],
    ['a\u{e0041}b', 'a\\u{e0041}b'],
    ['a\ud800b', 'a\\u{d800}b'],
    ['tab\tline\n', 'tab\tline\n'],
    ['naïve 日本語 😀', 'naïve 日本語 😀'],
  ])('%j', (text, shown) => {
    expect(neutralise(text)).toBe(shown);
  });

  test('even if it is a million random characters', () => {
    const random = seededRandom(13);
    let harmful = 0;
    for (let i = 0; i < 20_000; i++) {
      let text = '';
      for (let j = 0; j < 50; j++) {
        const roll = random();
        const point = roll < 0.5 ? random() * 0x100 : roll < 0.9 ? random() * 0x3000 : random() * 0x110000;
        text += String.fromCodePoint(Math.floor(point));
      }
      for (const character of neutralise(text)) if (isHarmful(character.codePointAt(0) as number)) harmful++;
    }
    expect(harmful).toBe(0);
  });
});

test('neutraliseLine returns one line, cut to the given number of characters', () => {
  expect(neutraliseLine('a\nb\tc', 100)).toBe('a\\nb c');
  expect(neutraliseLine('x'.repeat(1_000), 10)).toBe(`${'x'.repeat(10)}…`);
  expect(neutraliseLine('😀😀', 3)).toBe('😀…');
  expect(neutraliseLine('\u001b'.repeat(1_000), 10).length).toBeLessThanOrEqual(21);
});
