/** E9 by the clock: the longest URI against as many templates as one endpoint routes, each as costly as can be. */
import { expect, test } from 'vitest';
import type { Entry } from '../../src/gateway/views/table.js';
import { routedTemplatesMax, TemplateRoutes } from '../../src/gateway/views/template-routes.js';
import { expressionsMax, UriText } from '../../src/gateway/views/uri-templates.js';

const limitMs = 50;
const rounds = 20;
const chars = 8_000;

const repeated = (unit: string) => `x://${unit.repeat(chars)}`.slice(0, chars);

/** Each makes the matcher read the whole URI, most of it twice. Only the names of the variables differ from template to template. */
const cases: readonly (readonly [title: string, template: string, uri: string])[] = [
  ['any text, no literal found', `x://${'{+a}xxy'.repeat(expressionsMax)}`, repeated('x')],
  ['any text, every literal found but the last', `x://${'{+a}x'.repeat(31)}{+a}y`, repeated('x')],
  ['any text, literals found far apart', `x://${'{+a}y'.repeat(31)}{+a}z{+a}`, repeated(`${'x'.repeat(250)}y`)],
  ['a literal that falls back at every letter', `x://${'{+a}xyxyxyxz'.repeat(expressionsMax)}`, repeated('xyxyxyx')],
  ['a long literal that nearly occurs everywhere', `x://{+a}${'x'.repeat(1_900)}y{+b}`, repeated('x')],
  ['names in one segment', `x://${'{a}xxy'.repeat(expressionsMax)}`, repeated('x')],
  ['names in segments', `x://${'{a}/x'.repeat(31)}{+a}y`, repeated('x/')],
  ['names in one segment from the right', `x://{+z}${'yx{a}'.repeat(31)}`, repeated('x')],
];

test.each(cases)('E9 8,000 characters against 1,000 templates: %s', (title, template, uri) => {
  const entries = Array.from({ length: routedTemplatesMax }, (_, i): Entry => {
    const key = template.replaceAll('a}', `a${i}}`);
    return { server: 'a', key, name: key, item: { key, raw: Buffer.from('{}') } };
  });
  const routes = new TemplateRoutes(entries);
  const tookMs = Array.from({ length: rounds }, () => {
    const asked = new UriText(uri);
    const startedMs = performance.now();
    expect(routes.serversOf(asked)).toEqual([]);
    return performance.now() - startedMs;
  });
  const [firstMs] = tookMs as [number];
  const worstMs = Math.max(...tookMs);
  const medianMs = tookMs.sort((a, b) => a - b)[rounds / 2] as number;
  console.log(
    `${title}: first ${firstMs.toFixed(1)} ms, median ${medianMs.toFixed(1)} ms, worst ${worstMs.toFixed(1)} ms`,
  );
  expect(worstMs).toBeLessThan(limitMs);
});
