import fc from 'fast-check';
import { expect, test } from 'vitest';
import { FreshMap } from './fresh-map.js';

test('a fresh map keeps the order of insertion through many inserts and deletions', () => {
  const change = fc.tuple(fc.constantFrom('set', 'delete'), fc.nat(40));
  fc.assert(
    fc.property(fc.array(change, { maxLength: 2_000, size: 'max' }), (changes) => {
      const [fresh, plain] = [new FreshMap<number, number>(), new Map<number, number>()];
      for (const [at, [what, key]] of changes.entries()) {
        if (what === 'set') {
          fresh.set(key, at);
          plain.set(key, at);
        } else {
          fresh.delete(key);
          plain.delete(key);
        }
        expect(fresh.get(key)).toBe(plain.get(key));
      }
      expect([fresh.size, fresh.entries()]).toEqual([plain.size, [...plain]]);
      expect([...fresh.values()]).toEqual([...plain.values()]);
      fresh.clear();
      expect([fresh.size, fresh.entries()]).toEqual([0, []]);
    }),
    { numRuns: 30 },
  );
});
