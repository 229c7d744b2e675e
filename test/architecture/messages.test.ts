/**
 * Error messages and hints begin with a lower-case letter and have no final period.
 * They are read from the sources, so new ones are checked too.
 */
import { describe, expect, test } from 'vitest';
import { filesBelow, readText } from './tree.js';

/** The message of each `new HostError(code, …)` and `notExecuted(code, …)`; each `hint: …`, and the third argument of `notExecuted`. */
function textsIn(source: string): string[] {
  const quoted = /(?:'((?:[^'\\]|\\.)*)'|`((?:[^`\\]|\\.)*)`)/.source;
  const messages = new RegExp(`(?:new HostError|\\bnotExecuted)\\(\\s*[^,]+,\\s*${quoted}`, 'g');
  const hints = new RegExp(`\\bhint(?::|\\s*=)\\s*${quoted}`, 'g');
  const third = new RegExp(
    `\\bnotExecuted\\(\\s*[^,]+,\\s*(?:'(?:[^'\\\\]|\\\\.)*'|\`(?:[^\`\\\\]|\\\\.)*\`|[\\w.]+),\\s*${quoted}`,
    'g',
  );
  return [messages, hints, third].flatMap((pattern) =>
    [...source.matchAll(pattern)].map((match) => match[1] ?? match[2] ?? ''),
  );
}

const faultOf = (text: string): string | undefined => {
  if (/^[A-Z][a-z]/.test(text) && !text.startsWith('Hostler')) return 'starts with a capital';
  return /[^.]\.$/.test(text) ? 'ends with a period' : undefined;
};

describe('the check', () => {
  test.each([
    ["new HostError('x', 'The server is gone')", 'starts with a capital'],
    ["new HostError('x', `server is gone.`)", 'ends with a period'],
    ["{ hint: 'Try again' }", 'starts with a capital'],
    ["new HostError('x', `server is gone`, { hint: 'look at its stderr' })", undefined],
    ["notExecuted('x', 'The server is gone')", 'starts with a capital'],
    ["notExecuted('x', 'server is gone', 'try again.')", 'ends with a period'],
    ["notExecuted('x', `it is gone`, `Try again`, { tool })", 'starts with a capital'],
    ["notExecuted('x', text, 'look at its stderr', { tool })", undefined],
  ])('%s: %s', (source, fault) => {
    expect(textsIn(source).map(faultOf).find(Boolean)).toBe(fault);
  });
});

test('every message and hint in the sources follows the rules', () => {
  const found = filesBelow('src').flatMap((file) =>
    textsIn(readText(file)).map((text) => ({ file, text, fault: faultOf(text) })),
  );
  expect(found.length).toBeGreaterThan(40);
  expect(found.filter(({ fault }) => fault)).toEqual([]);
});
