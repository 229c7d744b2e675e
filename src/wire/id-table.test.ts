import { expect, test } from 'vitest';
import { randomInt, seededRandom } from '../kernel/random.js';
import { IdTable } from './id-table.js';

test('a table has the same content as a Map after 200,000 random steps with ids in order', () => {
  const random = seededRandom(11);
  const table = new IdTable<string>();
  const model = new Map<number, string>();
  let nextId = 1;
  for (let step = 0; step < 200_000; step++) {
    // The table fills and empties in turn, and every hundredth entry stays for long.
    const isCrowd = Math.floor(step / 20_000) % 2 === 0;
    if (random() < (isCrowd ? 0.55 : 0.45)) {
      table.set(nextId, `v${nextId}`);
      model.set(nextId, `v${nextId++}`);
    } else {
      const id = nextId - randomInt(random, 0, 200);
      if (id % 100 !== 0 || random() < 0.01) {
        const isThere = model.delete(id);
        if (table.delete(id) !== isThere) throw new Error(`deleting ${id} at step ${step}`);
      }
    }
    const asked = nextId - randomInt(random, 0, 300);
    if (table.get(asked) !== model.get(asked) || table.size !== model.size) throw new Error(`step ${step}`);
    if (step % 10_000 === 0) expect(table.values()).toEqual([...model.values()]);
  }
});

test('a lookup without an id finds nothing', () => {
  const table = new IdTable<string>();
  table.set(1, 'one');
  for (const id of [Number.NaN, -1, 0, 1.5, 65, 2 ** 40 + 1]) {
    expect([table.get(id), table.delete(id)]).toEqual([undefined, false]);
  }
  expect([table.get(1), table.size]).toEqual(['one', 1]);
});

test('an entry that stays while thousands are added and removed is found, and so are the thousands', () => {
  const table = new IdTable<number>();
  table.set(1, 1);
  for (let id = 2; id < 10_000; id++) {
    table.set(id, id);
    expect(table.get(id)).toBe(id);
    table.delete(id);
  }
  expect([table.get(1), table.size, table.values()]).toEqual([1, 1, [1]]);
});
