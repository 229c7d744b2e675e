import { expect, test } from 'vitest';
import { addFigures } from './figures.js';
import { metricTable } from './metric-table.js';

test('figures of several ingresses are added up', () => {
  expect(
    addFigures([
      { legacySessions: 2, modernStreams: 1, httpAnswers: { 2: 5, 4: 1 } },
      { legacySessions: 1, modernStreams: 0, httpAnswers: { 2: 1 } },
    ]),
  ).toEqual({ legacySessions: 3, modernStreams: 1, httpAnswers: { 1: 0, 2: 6, 3: 0, 4: 1, 5: 0 } });
  expect(addFigures([])).toMatchObject({ legacySessions: 0, modernStreams: 0 });
});

test('names are each there once, and counters end in _total', () => {
  const names = metricTable.map(({ name }) => name);
  expect(new Set(names).size).toBe(names.length);
  for (const { name, type } of metricTable) expect([name, name.endsWith('_total')]).toEqual([name, type === 'counter']);
});
