/**
 * Loads libsql synchronously from its installed package. Bundles replace this file: in `hostler up` by a file that contains
 * libsql, in the library by one that returns undefined, so that state-file.ts loads libsql by an import that bundlers follow.
 */
import { createRequire } from 'node:module';

export const requireLibsql = (): typeof import('libsql') | undefined =>
  createRequire(import.meta.url)('libsql') as typeof import('libsql');
