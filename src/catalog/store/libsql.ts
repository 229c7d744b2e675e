/** Loads libsql once. From a bundle, this native module can be loaded only by `import`. */
import type Database from 'libsql';
import { requireLibsql } from './require-libsql.js';

let libsql: typeof Database | undefined;

/** Await it before the first database is opened. */
export async function loadLibsql(): Promise<void> {
  libsql ??= requireLibsql() ?? (await import('libsql')).default;
}

export function loadedLibsql(): typeof Database {
  libsql ??= requireLibsql();
  if (libsql === undefined) throw new Error('libsql is used before it was loaded');
  return libsql;
}
