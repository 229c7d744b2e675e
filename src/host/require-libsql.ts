/**
 * libsql from where it is installed, at once. The bundles have other versions of this file: that of `hostler up` holds libsql
 * itself, and that of the library gives nothing, so that it is loaded by an import that bundlers follow (libsql.ts).
 */
import { createRequire } from 'node:module';

export const requireLibsql = (): typeof import('libsql') | undefined =>
  createRequire(import.meta.url)('libsql') as typeof import('libsql');
