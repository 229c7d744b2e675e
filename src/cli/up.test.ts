import { expect, test } from 'vitest';
import { codeFolder } from './up.js';

test('E8 code that was kept is not taken from below the working folder', () => {
  const HOME = '/own';
  const own = '/own/.local/share/hostler';
  expect(codeFolder('/data', { HOME })).toBe('/data');
  expect(codeFolder(undefined, { HOME, HOSTLER_DATA_DIR: '/other' })).toBe('/other');
  expect(codeFolder('.hostler', { HOME })).toBe(own);
  expect(codeFolder(undefined, { HOME, HOSTLER_DATA_DIR: '.hostler' })).toBe(own);
  expect(codeFolder('.hostler', { HOSTLER_DATA_DIR: '.hostler' })).toBeUndefined();
});
