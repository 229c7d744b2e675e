import { expect, test } from 'vitest';
import { cacheFolder } from './compile-cache.js';

test('E8 the compile cache is never below the working folder', () => {
  const HOME = '/own';
  const own = '/own/.local/share/hostler/compile-cache';
  expect(cacheFolder('/data', { HOME })).toBe('/data/compile-cache');
  expect(cacheFolder(undefined, { HOME, HOSTLER_DATA_DIR: '/other' })).toBe('/other/compile-cache');
  expect(cacheFolder('.hostler', { HOME })).toBe(own);
  expect(cacheFolder(undefined, { HOME, HOSTLER_DATA_DIR: '.hostler' })).toBe(own);
  expect(cacheFolder('.hostler', { HOSTLER_DATA_DIR: '.hostler' })).toBeUndefined();
});
