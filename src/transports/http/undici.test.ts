import { createRequire } from 'node:module';
import { expect, test } from 'vitest';
import { requireUndici } from './require-undici.js';

test('only the parts of undici in use are loaded', () => {
  const { Pool, buildConnector } = requireUndici() ?? {};
  expect([typeof Pool, typeof buildConnector]).toEqual(['function', 'function']);
  const loaded = Object.keys(createRequire(import.meta.url).cache).filter((file) => file.includes('/undici/'));
  expect(loaded.some((file) => file.includes('/lib/dispatcher/'))).toBe(true);
  expect(loaded.filter((file) => file.includes('/lib/web/'))).toEqual([]);
});
