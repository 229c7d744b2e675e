/**
 * An SQLite file of ours before SQLite sees it: made for us alone, and known for what it is by its header. Shared by all that
 * keep something in such a file (state-file.ts, the broker's store).
 * Not here: what is in it, and what is done about one that cannot be used (whoever opens it; set-aside.ts).
 *
 * Invariant: what can be told without SQLite is. libsql does not let go of a file it has opened, and a new one of the same
 * name would share its log with the old one, which is to stay as it is.
 */
import { chmodSync, closeSync, openSync, readSync } from 'node:fs';

/** The header of an SQLite file: how it begins, and where our version is in it. */
const headerBytes = 100;
const magic = Buffer.from('SQLite format 3\0');
const versionAt = 60;

/** Not a file of ours, or one that we do not know how to read. */
export class Unreadable extends Error {}

/** `noun`: what such a file holds. */
export interface OwnFormat {
  readonly noun: string;
  /** Raised with every change of the tables; an unknown one is not touched. */
  readonly version: number;
}

/** Makes the file if there is none. Throws `Unreadable` for one that is not ours, or of a version to come. */
export function claimDatabase(file: string, format: OwnFormat): void {
  // Made by us before SQLite makes it, so that it is never readable by others, not even for a moment.
  const descriptor = openSync(file, 'a+', 0o600);
  try {
    checkHeader(descriptor, format);
  } finally {
    closeSync(descriptor);
  }
  chmodSync(file, 0o600);
}

/** Throws for a version to come. */
export function checkVersion(found: number, { noun, version }: OwnFormat): void {
  if (found > version) throw new Unreadable(`${noun} of version ${found}, this Hostler knows ${version}`);
}

/** What no waiting will change: another file must take its place. */
export const isDamage = (error: unknown): boolean =>
  error instanceof Unreadable || ['SQLITE_NOTADB', 'SQLITE_CORRUPT'].includes(sqliteCode(error));

export const sqliteCode = (error: unknown): string => String((error as { code?: unknown } | null)?.code ?? '');

function checkHeader(descriptor: number, format: OwnFormat): void {
  const header = Buffer.alloc(headerBytes);
  const found = readSync(descriptor, header, 0, headerBytes, 0);
  if (found === 0) return;
  if (found < headerBytes || !header.subarray(0, magic.length).equals(magic))
    throw new Unreadable('not an SQLite file');
  checkVersion(header.readUInt32BE(versionAt), format);
}
