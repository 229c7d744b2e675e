/** docs/metrics.md lists every metric with its type and labels, in their order, and nothing else. */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { metricTable } from '../../src/gateway/metrics/metric-table.js';

const page = readFileSync(new URL('../../docs/metrics.md', import.meta.url), 'utf8');

test('the page and the table agree', () => {
  const rows = [...page.matchAll(/^\| `(\w+)` +\| (counter|gauge|histogram) +\| ([^|]*)\|/gm)];
  const documented = rows.map(([, name, type, labels]) => ({
    name,
    type,
    labels: [...(labels ?? '').matchAll(/`(\w+)`/g)].map(([, label]) => label),
  }));
  expect(documented).toEqual(metricTable.map(({ name, type, labels }) => ({ name, type, labels })));
});
