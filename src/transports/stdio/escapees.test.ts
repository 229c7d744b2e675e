import { expect, test } from 'vitest';
import { FakeProcesses } from '../../../test/fakes/stdio-process-table.js';
import { Escapees } from './escapees.js';

test('questions asked together share one walk, and each gets its own', async () => {
  const table = new FakeProcesses(
    { pid: 50, mark: 'a.1' },
    { pid: 51, mark: 'a.2' },
    { pid: 52, mark: 'a.1' },
    { pid: 53, mark: 'a.1', startTicks: 1 },
    { pid: 54 },
  );
  let walks = 0;
  const living = table.living.bind(table);
  table.living = () => {
    walks++;
    return living();
  };
  const escapees = new Escapees(table);
  expect(await Promise.all([escapees.find('a.1', 100), escapees.find('a.2', 100), escapees.find('a.3', 100)])).toEqual([
    [50, 52],
    [51],
    [],
  ]);
  expect(walks).toBe(1);
});
