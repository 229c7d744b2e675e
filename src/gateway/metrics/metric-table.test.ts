import { expect, test } from 'vitest';
import { addFigures, metricTable } from './metric-table.js';

test('figures of several ingresses are added up', () => {
  expect(
    addFigures([
      { clients: { legacy: 2, modern: 1 }, httpAnswers: { 2: 5, 4: 1 } },
      { clients: { legacy: 1, modern: 0 }, httpAnswers: { 2: 1 } },
    ]),
  ).toEqual({ clients: { legacy: 3, modern: 1 }, httpAnswers: { 1: 0, 2: 6, 3: 0, 4: 1, 5: 0 } });
  expect(addFigures([])).toMatchObject({ clients: { legacy: 0, modern: 0 } });
});

test('each name is given once, and counters end in _total', () => {
  const names = metricTable.map(({ name }) => name);
  expect(new Set(names).size).toBe(names.length);
  for (const { name, type } of metricTable) expect([name, name.endsWith('_total')]).toEqual([name, type === 'counter']);
});
