/**
 * Loads libsql synchronously from where it is installed. The bundles replace this file: in `hostler up` by one that holds libsql
 * itself, in the library by one that returns undefined, so that state-file.ts loads it by an import that bundlers follow.
 */
import { createRequire } from 'node:module';

export const requireLibsql = (): typeof import('libsql') | undefined =>
  createRequire(import.meta.url)('libsql') as typeof import('libsql');
