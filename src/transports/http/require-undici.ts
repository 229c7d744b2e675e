/**
 * Loads undici synchronously from its installed location. The bundle of the library replaces this file by one that returns
 * undefined: bundlers do not follow a `require` made by createRequire. Then undici.ts loads it with an import.
 */
import { createRequire } from 'node:module';

export const requireUndici = (): typeof import('undici') | undefined =>
  createRequire(import.meta.url)('undici') as typeof import('undici');
