import { expect, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import { parted, RequestBundles } from './nats-request-bundles.js';

const fresh = (id: string, ttlMs = 1_000, bytes = 2) => ({ id, body: Buffer.alloc(bytes), ttlMs, isFresh: true });

test('what is sent again is all that somebody may wait for, with what is left of its time', () => {
  const clock = new FakeClock();
  const bundles = new RequestBundles(clock);
  const bundle = bundles.add([fresh('a', 500), fresh('b', 1_000), fresh('c', 2_000), fresh('d', 2_000)]);
  if (!bundle) throw new Error('no bundle');
  expect(bundle.id).toBe('a');
  expect(bundles.toSend(bundle, false).map(({ id, ttlMs }) => [id, ttlMs])).toEqual([
    ['a', 500],
    ['b', 1_000],
    ['c', 2_000],
    ['d', 2_000],
  ]);
  bundles.over('d');
  clock.advance(700);
  expect(bundles.toSend(bundle, false).map(({ id, ttlMs }) => [id, ttlMs])).toEqual([
    ['b', 300],
    ['c', 1_300],
  ]);
  // Its name stays, and so does who belongs to it.
  expect(bundles.of('b')).toBe(bundle);
  expect(bundles.of('d')).toBeUndefined();
  bundles.forget(bundle);
  expect(bundles.size).toBe(0);
});

test('one alone is no bundle, and a key that may be held already is in none', () => {
  const bundles = new RequestBundles(new FakeClock());
  expect(bundles.add([fresh('a')])).toBeUndefined();
  expect(bundles.takes(fresh('a'))).toBe(true);
  expect(bundles.takes({ ...fresh('a'), isFresh: false })).toBe(false);
  expect(bundles.takes({ id: 'a', body: Buffer.alloc(2), ttlMs: 1 })).toBe(false);
  expect(bundles.takes(fresh('a', 1_000, 200_000))).toBe(false);
});

test('what cannot be remembered is not bundled; what nobody waits for makes room', () => {
  const clock = new FakeClock();
  const bundles = new RequestBundles(clock);
  for (let n = 0; bundles.takes(fresh('next')); n += 16)
    bundles.add(Array.from({ length: 16 }, (_, at) => fresh(`k${n + at}`, 5_000)));
  expect(bundles.size).toBeLessThanOrEqual(4_096);
  expect(bundles.size).toBeGreaterThan(4_000);
  clock.advance(2_000);
  expect(bundles.takes(fresh('next'))).toBe(false);
  clock.advance(3_000);
  expect(bundles.takes(fresh('next'))).toBe(true);
  expect(bundles.size).toBe(0);
});

test('a turn is parted by count and by bytes, in order', () => {
  const all = Array.from({ length: 40 }, (_, n) => ({ request: fresh(`k${n}`) }));
  const parts = [...parted(all)];
  expect(parts.flat()).toEqual(all);
  expect(Math.max(...parts.map(({ length }) => length))).toBeLessThanOrEqual(64);
  const large = Array.from({ length: 5 }, (_, n) => ({ request: fresh(`k${n}`, 1, 120_000) }));
  expect([...parted(large)].map(({ length }) => length)).toEqual([2, 2, 1]);
});
