import { expect, test } from 'vitest';
import { fairShares, routedTemplatesMax, type TemplateEntry, TemplateRoutes } from './template-routes.js';
import { expressionsMax, UriText } from './uri-templates.js';

const entry = (server: string, key: string): TemplateEntry => ({
  server,
  key,
  item: { key, raw: Buffer.from('{}') },
});
const serversOf = (routes: TemplateRoutes, uri: string): string[] => routes.serversOf(new UriText(uri));

test('every server with a template for the URI is found, each once and in order', () => {
  const routes = new TemplateRoutes([
    ...['x://{a}', 'x://{+a}', 'y://{a}'].map((key) => entry('one', key)),
    ...['x://{a}'].map((key) => entry('two', key)),
  ]);
  expect(serversOf(routes, 'x://1')).toEqual(['one', 'two']);
  expect(serversOf(routes, 'x://1/2')).toEqual(['one']);
  expect(serversOf(routes, 'z://1')).toEqual([]);
});

test('E6 a template without a literal prefix routes nothing and is named', () => {
  const routes = new TemplateRoutes(['{+any}', '{scheme}://x', 'x://{'].map((key) => entry('greedy', key)));
  expect(serversOf(routes, 'x://x')).toEqual([]);
  expect(routes.unrouted).toEqual([
    { server: 'greedy', template: '{+any}', reason: 'no_prefix' },
    { server: 'greedy', template: '{scheme}://x', reason: 'no_prefix' },
    { server: 'greedy', template: 'x://{', reason: 'unreadable' },
  ]);
});

test('E9 at most 1,000 templates are routed, and one server cannot push out those of another', () => {
  const routes = new TemplateRoutes([
    ...Array.from({ length: 2_000 }, (_, i) => entry('greedy', `g://${i}/{a}`)),
    ...Array.from({ length: 10 }, (_, i) => entry('modest', `m://${i}/{a}`)),
  ]);
  expect(serversOf(routes, 'm://9/x')).toEqual(['modest']);
  expect(serversOf(routes, `g://${routedTemplatesMax - 11}/x`)).toEqual(['greedy']);
  expect(serversOf(routes, `g://${routedTemplatesMax - 10}/x`)).toEqual([]);
  expect(routes.unrouted).toHaveLength(1_010);
  expect(routes.unrouted).toContainEqual({ server: 'greedy', template: 'g://990/{a}', reason: 'too_many' });
});

test('E9 of one server at most twice as many templates are parsed as can be routed', () => {
  const unreadable = Array.from({ length: 5 }, (_, i) => entry('a', `x://${i}/{`));
  const reasonsOf = (entries: TemplateEntry[]) => new TemplateRoutes(entries, 2).unrouted.map(({ reason }) => reason);
  expect(reasonsOf([...unreadable, entry('a', 'x://{id}')])).toEqual([
    ...['unreadable', 'unreadable', 'unreadable', 'unreadable', 'too_many', 'too_many'],
  ]);
  const good = [1, 2, 3].map((i) => entry('a', `x://${i}/{id}`));
  expect(reasonsOf([...good, ...unreadable.slice(0, 1)])).toEqual(['too_many', 'too_many']);
});

test.each([
  [[5, 5], 20, [5, 5]],
  [[50, 5, 50], 20, [7, 5, 8]],
  [[1, 2, 3], 2, [0, 1, 1]],
  [[], 5, []],
])('requests for %j of %i places get %j', (wanted, max, expected) => {
  expect(fairShares(wanted, max)).toEqual(expected);
});

test('E9 each of 1,000 templates with 32 expressions takes at most two steps per character to match 8,000 characters', () => {
  const own = Array.from({ length: 1_200 }, (_, i) => `x://{+a${i}}${'xxy{+a}'.repeat(expressionsMax - 1)}`);
  const routes = new TemplateRoutes(own.map((key) => entry('a', key)));
  const uri = new UriText(`x://${'x'.repeat(7_996)}`);
  expect(routes.serversOf(uri)).toEqual([]);
  // Every template was matched up to nearly the end of the URI.
  expect(uri.meter.steps).toBeGreaterThan(1_000 * 7_000);
  expect(uri.meter.steps).toBeLessThanOrEqual(1_000 * (2 * 8_000 + 2_048));
});
