import { createRequire } from 'node:module';
import { Script } from 'node:vm';
import { expect, test } from 'vitest';
import { withStartFlags } from './parser-flag.js';
import { requireUndici } from './require-undici.js';

test('only the parts of undici in use are loaded', () => {
  const { Pool, buildConnector } = requireUndici() ?? {};
  expect([typeof Pool, typeof buildConnector]).toEqual(['function', 'function']);
  const loaded = Object.keys(createRequire(import.meta.url).cache).filter((file) => file.includes('/undici/'));
  expect(loaded.some((file) => file.includes('/lib/dispatcher/'))).toBe(true);
  expect(loaded.filter((file) => file.includes('/lib/web/'))).toEqual([]);
});

test('undici is loaded with a flag of V8 that a start without HTTP servers does not set', () => {
  const cachedData = withStartFlags(() => new Script('(() => 1)()').createCachedData());
  requireUndici();
  // Another source of the same length: V8 keeps compiled scripts, and then does not look at the cache.
  expect(new Script('(() => 2)()', { cachedData }).cachedDataRejected).toBe(true);
  const script = withStartFlags(() => new Script('(() => 3)()', { cachedData }));
  expect(script.cachedDataRejected).toBe(false);
});
