/**
 * Loads libsql synchronously from its installed package. Bundles replace this file: in the `hostler` command, the replacement
 * contains libsql; in the library, it returns undefined, and libsql.ts then uses an import that bundlers follow.
 */
import { createRequire } from 'node:module';

export const requireLibsql = (): typeof import('libsql') | undefined =>
  createRequire(import.meta.url)('libsql') as typeof import('libsql');
