/**
 * Prepares an SQLite file before SQLite opens it: creates it with private permissions, checks its header, and moves an unusable
 * file aside. Used by state-file.ts and the broker's store.
 * Not here: the tables, and the decision to move a file.
 *
 * Invariants: the header is checked without SQLite, because libsql does not close a file that it has opened, and a new file of
 * the same name would share the log of the open one. A moved file is never overwritten; at most `asideMax` are kept.
 */
import { chmodSync, closeSync, existsSync, openSync, readdirSync, readSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';

const asideMax = 5;

/** The header of an SQLite file: its magic text, and the offset of `user_version`. */
const headerBytes = 100;
const magic = Buffer.from('SQLite format 3\0');
const versionAt = 60;

/** The file is damaged, is not an SQLite file, or has a newer version than this Hostler knows. */
export class Unreadable extends Error {}

/** The file is sound, and a newer Hostler wrote it. */
export class NewerFormat extends Unreadable {}

export interface OwnFormat {
  /** Name of the file's content in messages. */
  readonly noun: string;
  /** Raised with every change of the tables. */
  readonly version: number;
}

/** Creates a missing file. Throws `Unreadable` if the file is not an SQLite file or has a newer version. */
export function claimDatabase(file: string, format: OwnFormat): void {
  // Created here and not by SQLite, so that other users can never read it.
  const descriptor = openSync(file, 'a+', 0o600);
  try {
    checkHeader(descriptor, format);
  } finally {
    closeSync(descriptor);
  }
  chmodSync(file, 0o600);
}

export function checkVersion(found: number, { noun, version }: OwnFormat): void {
  if (found > version) throw new NewerFormat(`${noun} of version ${found}, this Hostler knows ${version}`);
}

/** True: a retry cannot help; the file must be replaced. */
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

/** Moves the file and its log to `<file>.unusable`, then `<file>.unusable-2` and so on. Returns the new path. */
export function setAside(file: string): string {
  const folder = path.dirname(file);
  const first = `${path.basename(file)}.unusable`;
  const nameOf = (number: number) => path.join(folder, number === 1 ? first : `${first}-${number}`);
  const numbers = readdirSync(folder)
    .filter((name) => name.startsWith(first))
    .map((name) => (name === first ? 1 : Number(name.slice(first.length + 1))))
    .filter(Number.isInteger)
    .sort((a, b) => a - b);
  const aside = nameOf((numbers.at(-1) ?? 0) + 1);
  renameSync(file, aside);
  // The log contains pages that are not in the file yet.
  if (existsSync(`${file}-wal`)) renameSync(`${file}-wal`, `${aside}-wal`);
  const tooMany = Math.max(0, numbers.length + 1 - asideMax);
  for (const number of numbers.slice(0, tooMany))
    for (const end of ['', '-wal']) rmSync(`${nameOf(number)}${end}`, { force: true });
  return aside;
}
