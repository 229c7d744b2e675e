/**
 * libsql, loaded when a host keeps state: it is native, and the one package that a bundler must leave outside.
 */
import type Database from 'libsql';
import { requireLibsql } from './require-libsql.js';

type Libsql = typeof Database;

let loaded: Libsql | undefined;

/** To be awaited before a state file is opened: in a bundle there is no other way to load it. */
export async function loadLibsql(): Promise<void> {
  loaded ??= requireLibsql() ?? (await import('libsql')).default;
}

export function libsql(): Libsql {
  loaded ??= requireLibsql();
  if (loaded === undefined) throw new Error('libsql is used before it was loaded');
  return loaded;
}
