/**
 * Loads libsql synchronously from its installed package. Bundles replace this file. The replacement in `hostler up` contains
 * libsql. That in the library returns undefined, so state-file.ts uses an import that bundlers follow.
 */
import { createRequire } from 'node:module';

export const requireLibsql = (): typeof import('libsql') | undefined =>
  createRequire(import.meta.url)('libsql') as typeof import('libsql');
