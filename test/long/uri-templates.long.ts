/** E9 by the clock: the longest URI against as many templates as one endpoint routes, each as costly as can be. */
import { expect, test } from 'vitest';
import { routedTemplatesMax, type TemplateEntry, TemplateRoutes } from '../../src/gateway/views/template-routes.js';
import { UriText } from '../../src/gateway/views/uri-templates.js';

const limitMs = 50;
const rounds = 20;
const chars = 8_000;

const repeated = (unit: string) => `x://${unit.repeat(chars)}`.slice(0, chars);

/** Each has at most 32 expressions and makes the matcher read most of the URI. Only the names of variables differ between templates. */
const cases: readonly (readonly [title: string, template: string, uri: string])[] = [
  ['any text, no literal found', `x://{+a}${'xxy{+a}'.repeat(31)}`, repeated('x')],
  ['any text, literals found far apart', `x://{+a}${'y{+a}'.repeat(30)}z{+a}`, repeated(`${'x'.repeat(250)}y`)],
  ['a literal that nearly fits everywhere', `x://{+a}${'xyxyxyxz{+a}'.repeat(31)}`, repeated('xyxyxyx')],
  ['a literal whose right part matches everywhere', `x://{+a}${'zxyxy{+a}'.repeat(31)}`, repeated('xy')],
  ['a long literal that nearly occurs everywhere', `x://{+a}${'x'.repeat(1_900)}y{+a}`, repeated('x')],
  ['a long literal that differs in its first letter', `x://{+a}y${'x'.repeat(1_900)}{+a}`, repeated('x')],
  ['names in one segment', `x://${'{a}xxy'.repeat(32)}`, repeated('x')],
  ['names in one segment from the right', `x://{+z}${'yx{a}'.repeat(31)}`, repeated('x')],
];

test.each(cases)('E9 8,000 characters against 1,000 templates: %s', (title, template, uri) => {
  const entries = Array.from({ length: routedTemplatesMax }, (_, i): TemplateEntry => {
    const key = template.replaceAll('a}', `a${i}}`);
    return { server: 'a', key, item: { key, raw: Buffer.from('{}') } };
  });
  const routes = new TemplateRoutes(entries);
  expect(routes.unrouted).toEqual([]);
  let steps = 0;
  const tookMs = Array.from({ length: rounds }, () => {
    const asked = new UriText(uri);
    const startedMs = performance.now();
    const cpu = process.cpuUsage();
    const found = routes.serversOf(asked);
    const { user, system } = process.cpuUsage(cpu);
    const wallMs = performance.now() - startedMs;
    expect(found).toEqual([]);
    steps = asked.meter.steps;
    // On a busy machine the wall clock counts the work of others too.
    return Math.min(wallMs, (user + system) / 1_000);
  });
  const [firstMs] = tookMs as [number];
  const worstMs = Math.max(...tookMs);
  const medianMs = tookMs.sort((a, b) => a - b)[rounds / 2] as number;
  const shown = [firstMs, medianMs, worstMs].map((ms) => `${ms.toFixed(1)} ms`);
  console.log(`${title}: first ${shown[0]}, median ${shown[1]}, worst ${shown[2]}, ${steps} comparisons`);
  expect(steps).toBeGreaterThan((routedTemplatesMax * chars) / 2);
  expect(worstMs).toBeLessThan(limitMs);
});
