/**
 * undici from where it is installed, at once. The bundle of the library has another version of this file, which gives nothing:
 * bundlers do not follow `require` of a made function, and undici is then loaded by an import that they do follow (undici.ts).
 */
import { createRequire } from 'node:module';

export const requireUndici = (): typeof import('undici') | undefined =>
  createRequire(import.meta.url)('undici') as typeof import('undici');
