/**
 * Loads undici synchronously from where it is installed. The bundle of the library replaces this file by one that returns
 * undefined: bundlers do not follow a `require` made by createRequire, so undici.ts loads it by an import that they follow.
 */
import { createRequire } from 'node:module';

export const requireUndici = (): typeof import('undici') | undefined =>
  createRequire(import.meta.url)('undici') as typeof import('undici');
