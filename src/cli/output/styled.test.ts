import { expect, test } from 'vitest';
import { countFor } from '../../../test/tier.js';
import { seededRandom } from '../../kernel/random.js';
import { neutraliseJson, neutraliseLine, showUnseen } from '../../kernel/terminal-text.js';
import { cut, flow, type Line, paint, plainScreen, type Screen, screenOf, span, widthOf, wrap } from './styled.js';
import { table } from './table.js';

const terminal = { isTTY: true, columns: 100 };
const sgr = '\u001b[';

test.each<[string, object, NodeJS.ProcessEnv, boolean]>([
  ['a terminal', terminal, {}, true],
  ['a pipe', {}, {}, false],
  ['NO_COLOR', terminal, { NO_COLOR: '1' }, false],
  ['an empty NO_COLOR', terminal, { NO_COLOR: '' }, true],
  ['TERM=dumb', terminal, { TERM: 'dumb' }, false],
  ['FORCE_COLOR on a pipe', {}, { FORCE_COLOR: '1' }, true],
  ['FORCE_COLOR and NO_COLOR', {}, { FORCE_COLOR: '1', NO_COLOR: '1' }, true],
  ['FORCE_COLOR=0', terminal, { FORCE_COLOR: '0' }, false],
])('AC-E14 colours with %s (%j, %j): %s', (_name, stream, env, isColoured) => {
  const text = paint(span('good', 'ready'), screenOf(stream, env));
  expect(text.includes(sgr)).toBe(isColoured);
});

test.each([
  [{ isTTY: true, columns: 120 }, 120],
  [{ isTTY: true, columns: 0 }, 80],
  [{ isTTY: true }, 80],
  [{}, Number.POSITIVE_INFINITY],
])('the output %j is %s columns wide', (stream, width) => {
  expect(screenOf(stream, {}).width).toBe(width);
});

test('symbols are for terminals; a script gets the word alone', () => {
  const state = span('good', 'ready', '●');
  expect(paint(state, screenOf(terminal, { NO_COLOR: '1' }))).toBe('● ready');
  expect([paint(state, screenOf({}, {})), paint(state, screenOf(terminal, { TERM: 'dumb' }))]).toEqual([
    'ready',
    'ready',
  ]);
});

test('text of a server stays on its line and contains no control character, coloured or not', () => {
  const hostile = 'a\u001b[2J\nb\u202e\r\u0007';
  const shown = paint(['x ', span('bad', hostile)], { width: 80, isColoured: true, hasSymbols: true });
  expect(shown).toBe(`x ${sgr}31ma\\u{1b}[2J\\nb\\u{202e}\\u{d}\\u{7}${sgr}39m`);
});

test.each([
  ['abcdef', 6, 'abcdef'],
  ['abcdef', 5, 'abcd…'],
  ['ab cdef', 4, 'ab…'],
  ['日本語', 6, '日本語'],
  ['日本語', 5, '日本…'],
  ['日本語', 4, '日…'],
  ['e\u0301e\u0301', 2, 'e\u0301e\u0301'],
])('%s in %i columns is %s', (text, width, shown) => {
  expect(cut(text, width)).toBe(shown);
  expect(widthOf(shown)).toBeLessThanOrEqual(width);
});

const rows = [
  ['SERVER', 'STATE', 'NOTE'],
  ['memory', span('good', 'ready', '●'), ''],
  [
    'a-server-with-a-very-long-name-from-a-client',
    span('bad', 'parked', '✗'),
    'the command was not found on the PATH '.repeat(9),
  ],
];

test.each([40, 80, 120, 200])('a table fits %i columns, and every row is one line', (width) => {
  const screen: Screen = { width, isColoured: false, hasSymbols: true };
  const lines = table(rows, screen).map((line) => paint(line, screen));
  expect(lines).toHaveLength(3);
  expect(Math.max(...lines.map(widthOf))).toBeLessThanOrEqual(width);
  expect(lines[1]).toMatch(/^memory +● ready$/);
  expect(lines[2]).toMatch(/✗ parked .*…$/);
});

test('a pipe gets every column uncut', () => {
  expect(paint(table(rows, plainScreen)[2] ?? '', plainScreen)).toContain(String(rows[2]?.[2]).trimEnd());
});

test('text is broken between words, never within one', () => {
  expect(wrap('one two three fourteen'.split(' '), 9, '  ')).toEqual(['one two', '  three', '  fourteen']);
});

test.each<[string, Line, readonly string[]]>([
  ['a line that fits', 'one two three', ['one two three']],
  ['a longer one', 'note  one two three four', ['note  one two', '      three four']],
  ['pieces', [span('bad', 'broken', '✗'), '  one: two, three'], ['✗ broken  one:', '      two, three']],
  ['a word in two pieces', ['one two thr', span('dim', 'ee! four')], ['one two three!', '      four']],
  ['an indentation before a long word', `      ${'x'.repeat(12)} y`, [`      ${'x'.repeat(12)}`, '      y']],
])('AC-E14 %s is broken between words, with an indentation', (_name, line, shown) => {
  const screen: Screen = { width: 16, isColoured: false, hasSymbols: true };
  expect(flow(line, screen, 6).map((each) => paint(each, screen))).toEqual(shown);
  expect(flow(line, plainScreen, 6)).toEqual([line]);
});

test('AC-E14 random texts of a server add no control character to a table, a log line, a comparison or JSON', () => {
  const unsafe = /[\p{Cc}\p{Cs}\p{Bidi_Control}\u2028\u2029\u200b]/u;
  const plain: Screen = { width: 80, isColoured: false, hasSymbols: true };
  const random = seededRandom(16);
  const below = (count: number): number => Math.floor(random() * count);
  const hostile = [
    ...['\u001b[2J', '\u001b]8;;http://x\u0007', '\u0007', '\r', '\n', '\t', '\b', '\u009b31m', '\u202e'],
    ...['\u2028', '\u200b', '\ud800', '\udc00', '\ufeff', '\u{e0041}', 'é', '日', 'e\u0301', 'a'],
  ];
  const ranges = [0x100, 0x3000, 0x110000];
  const piece = () =>
    random() < 0.5 ? hostile[below(hostile.length)] : String.fromCodePoint(below(ranges[below(3)] as number));
  const text = () => Array.from({ length: below(12) }, piece).join('');
  const found: string[] = [];
  for (let round = 0; round < countFor(5_000, 250_000); round++) {
    const texts = [text(), text(), text(), text()] as const;
    const [one, two, three, four] = texts;
    const rows = table([[one, span('bad', two, '✗'), three, four]], plain).map((line) => paint(line, plain));
    const json = neutraliseJson(JSON.stringify(texts));
    const shown = [...rows, neutraliseLine(one, 8), showUnseen(neutraliseLine(two, 400)), json];
    found.push(...shown.filter((each) => unsafe.test(each)));
    if (rows.length !== 1 || widthOf(rows[0] ?? '') > 80 || JSON.stringify(JSON.parse(json)) !== JSON.stringify(texts))
      found.push(json);
  }
  expect(found.slice(0, 3)).toEqual([]);
});
