/**
 * The confirmed configurations of this user: `trust.json` in the user's own data folder. It is never in `--data-dir`, because a
 * repository could contain that folder.
 * Not here: the parts that need confirmation (config-parts.ts), asking for one (ask-trust.ts).
 * Invariants: a confirmation is for one file, used from one folder, of one owner. A store that cannot be read, or that other
 * users could have written, confirms nothing. The file is replaced as a whole, private to its user, and bounded in size.
 */
import { closeSync, constants, fstatSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { withEditLock } from '../../kernel/edit-lock.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import { replaceFile } from '../../kernel/replace-file.js';
import { requireTrusted } from '../../transports/stdio/state-dir.js';
import { prepareDataDir } from '../config/data-dir.js';

/** Identity of a confirmed file. It includes the folder, because commands and paths may be relative to it. */
export interface TrustedLocation {
  /** Path without symbolic links. */
  readonly file: string;
  readonly folder: string;
  readonly uid: number;
}

export interface Confirmation extends TrustedLocation {
  readonly at: string;
  readonly digests: readonly string[];
}

const filesMax = 1_000;
const digestsMax = 100_000;
const bytesMax = 16 * 1024 * 1024;
const othersMayWrite = 0o022;

export class TrustStore {
  readonly path: string;
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
    this.path = path.join(folder, 'trust.json');
  }

  list(): readonly Confirmation[] {
    requireTrusted(this.#folder);
    return parse(readOwn(this.path));
  }

  /** The confirmed digests; undefined if this file was never confirmed in this folder for this owner. */
  find(location: TrustedLocation): ReadonlySet<string> | undefined {
    const found = this.list().find((each) => isSame(each, location) && each.uid === location.uid);
    return found && new Set(found.digests);
  }

  /** Replaces the earlier confirmation: a part that was removed must be confirmed again if it is added again. */
  confirm(location: TrustedLocation, digests: readonly string[], at: Date): void {
    const { file, folder, uid } = location;
    this.#change((all) => [
      ...all.filter((each) => !isSame(each, location)),
      { file, folder, uid, at: at.toISOString(), digests },
    ]);
  }

  /** Adds a digest to all confirmations of a file. Returns false if the file is not confirmed. */
  extend(file: string, digest: string): boolean {
    const isKnown = this.list().some((each) => each.file === file);
    if (isKnown)
      this.#change((all) =>
        all.map((each) => (each.file === file ? { ...each, digests: [...new Set([...each.digests, digest])] } : each)),
      );
    return isKnown;
  }

  /** Returns the number of removed confirmations. */
  remove(file: string): number {
    const count = this.list().filter((each) => each.file === file).length;
    if (count > 0) this.#change((all) => all.filter((each) => each.file !== file));
    return count;
  }

  #change(edit: (all: readonly Confirmation[]) => readonly Confirmation[]): void {
    prepareDataDir(this.#folder);
    try {
      withEditLock(this.path, () => replace(this.path, bounded(edit(this.list()))));
    } catch (error) {
      if (isHostError(error)) throw error;
      const { code = 'unwritable' } = error as NodeJS.ErrnoException;
      throw new HostError('invalid_spec', `the confirmation cannot be written to ${this.path} (${code})`, {
        reason: 'data_dir',
        hint: 'make that folder writable, or set HOSTLER_DATA_DIR',
        cause: error,
      });
    }
  }
}

const isSame = (a: TrustedLocation, b: TrustedLocation): boolean => a.file === b.file && a.folder === b.folder;

/** Drops the oldest confirmations first. */
function bounded(all: readonly Confirmation[]): readonly Confirmation[] {
  const newest: Confirmation[] = [];
  let digests = 0;
  for (const each of [...all].reverse()) {
    digests += each.digests.length;
    if (newest.length >= filesMax || (digests > digestsMax && newest.length > 0)) break;
    newest.unshift(each);
  }
  return newest;
}

function readOwn(file: string): string {
  let descriptor: number | undefined;
  try {
    const { O_RDONLY, O_NOFOLLOW = 0, O_NONBLOCK = 0 } = constants;
    descriptor = openSync(file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    const facts = fstatSync(descriptor);
    const ownUid = process.getuid?.();
    const isOwn = ownUid === undefined || (facts.uid === ownUid && (facts.mode & othersMayWrite) === 0);
    return facts.isFile() && isOwn && facts.size <= bytesMax ? readFileSync(descriptor, 'utf8') : '';
  } catch {
    return '';
  } finally {
    if (descriptor !== undefined) closeSync(descriptor);
  }
}

/** Malformed entries confirm nothing. */
function parse(text: string): Confirmation[] {
  try {
    const { files } = JSON.parse(text) as { files?: unknown };
    return Array.isArray(files) ? files.filter(isConfirmation) : [];
  } catch {
    return [];
  }
}

function isConfirmation(value: unknown): value is Confirmation {
  if (typeof value !== 'object' || value === null) return false;
  const { file, folder, uid, at, digests } = value as Partial<Confirmation>;
  const areTexts = [file, folder, at].every((each) => typeof each === 'string');
  return (
    areTexts && typeof uid === 'number' && Array.isArray(digests) && digests.every((each) => typeof each === 'string')
  );
}

function replace(file: string, files: readonly Confirmation[]): void {
  const beside = `${file}.${process.pid}.new`;
  // A dead process with the same id may have left this file. The lock excludes a running process.
  rmSync(beside, { force: true });
  replaceFile(file, beside, (made) => writeFileSync(made, `${JSON.stringify({ version: 1, files }, null, 1)}\n`));
}
