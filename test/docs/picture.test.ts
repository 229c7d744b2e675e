/** The picture of the README shows what the commands print. After a change: `node scripts/picture.mjs`. */
import { readFileSync } from 'node:fs';
import { stripVTControlCharacters } from 'node:util';
import { expect, test } from 'vitest';
import { pictureFile, record, svgOf } from '../../scripts/picture.mjs';

/** The lines of a picture, as a reader sees them. */
const textIn = (svg: string): string[] =>
  [...svg.matchAll(/<text [^>]*>(.*)<\/text>/g)].map(([, spans = '']) =>
    spans
      .replace(/<[^>]*>/g, '')
      .replaceAll('&lt;', '<')
      .replaceAll('&gt;', '>')
      .replaceAll('&amp;', '&'),
  );

test('the terminal in the README is what the commands print, with its colours', async () => {
  const shown = readFileSync(pictureFile, 'utf8');
  const recorded = await record();
  const printed = recorded.flatMap(({ command, lines }) => [`$ ${command}`, ...lines, '']).slice(0, -1);
  expect(printed.length).toBeGreaterThan(20);
  expect(textIn(shown)).toEqual(printed.map(stripVTControlCharacters));
  expect(shown).toBe(svgOf(recorded));
  expect(readFileSync(new URL('../../README.md', import.meta.url), 'utf8')).toContain('](docs/images/terminal.svg)');
});
