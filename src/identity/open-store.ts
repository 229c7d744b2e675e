/**
 * Opens identity.db in the folder of the user: checks the folder, obtains the key and proves it.
 * Invariants: a damaged file is set aside and reported. A missing or wrong key, and a file of a newer Hostler, are `store_locked`,
 * and the file is not changed.
 */
import { randomBytes } from 'node:crypto';
import { chmodSync, realpathSync, statfsSync, statSync } from 'node:fs';
import path from 'node:path';
import type Database from 'libsql';
import { isDamage, NewerFormat, type OwnFormat, setAside, sqliteCode } from '../catalog/store/database-file.js';
import { OpenedFiles, openDatabase } from '../catalog/store/open-database.js';
import { type Clock, sleep } from '../kernel/clock.js';
import { HostError, isHostError } from '../kernel/errors.js';
import { makeFolders } from '../kernel/make-folders.js';
import { requireTrusted } from '../transports/stdio/state-dir.js';
import { storeLocked } from './identity-errors.js';
import { IdentityStore, identitySchema } from './identity-store.js';
import { createKeyFile, createSealer, operatorKey, readKeyFile, type Sealer } from './seal.js';

export const identityFileName = 'identity.db';
const keyFileName = 'identity.key';
const format: OwnFormat = { noun: 'identity store', version: 1 };
const changeMsMax = 30_000;
const changeRetryMs = 50;
const proof = ['store', 'proof', 'value'];
const proofText = 'hostler identity';

/** NFS, SMB, CIFS, SMB2, CephFS, Lustre, GPFS and AFS: SQLite in WAL mode does not work between machines. */
const networkFileSystems: ReadonlySet<number> = new Set([
  ...[0x6969, 0x517b, 0xff534d42, 0xfe534d42, 0xc36400, 0xbd00bd0, 0x47504653, 0x5346414f],
]);
/** 9p and FUSE: containers and WSL use them for local files too, so the store is used. */
const maybeShared: ReadonlySet<number> = new Set([0x1021997, 0x65735546]);

export interface StoreSettings {
  readonly folder: string;
  /** `identity.key` of the user's configuration; undefined: a key file beside the database. */
  readonly key?: string | undefined;
  readonly onProblem: (error: unknown) => void;
}

const opened = new OpenedFiles<IdentityStore>();

/** Await `loadLibsql` before. */
export function openStore(settings: StoreSettings): IdentityStore {
  const problem = prepareFolder(settings.folder);
  const file = path.join(realpathSync(settings.folder), identityFileName);
  return opened.once(file, () => {
    const store = new IdentityStore(...prepare(file, settings));
    if (problem) settings.onProblem(problem);
    return store;
  });
}

/** Returns a problem that does not keep the store from being used. */
function prepareFolder(folder: string): HostError | undefined {
  makeFolders(folder);
  requireTrusted(folder);
  if ((statSync(folder).mode & 0o077) !== 0) chmodSync(folder, 0o700);
  const { type } = statfsSync(folder);
  if (networkFileSystems.has(type))
    throw storeLocked('is on a network file system', 'set identity.dir to a folder on a local disk');
  if (!maybeShared.has(type)) return undefined;
  return new HostError('invalid_spec', `${identityFileName} is on a file system that other machines may share`, {
    ...{ field: 'identity.dir', reason: 'shared_store' },
    hint: 'if several machines use this folder, set identity.dir to a folder on a local disk of each',
  });
}

function prepare(file: string, settings: StoreSettings): [Database.Database, Sealer] {
  try {
    const database = openDatabase(file, format, identitySchema);
    return [database, sealerOf(database, path.join(path.dirname(file), keyFileName), settings.key)];
  } catch (error) {
    if (isHostError(error)) throw error;
    if (error instanceof NewerFormat)
      throw storeLocked(
        'was written by a newer Hostler',
        'use that version, or set identity.dir to another folder',
        error,
      );
    if (!isDamage(error)) throw unusableStore(error);
    const aside = path.basename(setAside(file));
    settings.onProblem(
      new HostError('invalid_spec', `${identityFileName} could not be read and was set aside`, {
        field: 'identity.dir',
        reason: 'unusable_store',
        hint: `log in to each server again; the old file is ${aside}`,
        cause: error,
      }),
    );
    return prepare(file, settings);
  }
}

function sealerOf(database: Database.Database, keyFile: string, operator: string | undefined): Sealer {
  const read = (name: string) => {
    const row = database.prepare('SELECT value FROM store WHERE name = ?').get(name) as { value: Buffer } | undefined;
    return row && Buffer.from(row.value);
  };
  const write = (name: string, value: Buffer) =>
    database.prepare('INSERT OR IGNORE INTO store VALUES (?, ?)').run(name, value);
  const proven = read('proof');
  // A new key is created only for a store that has none yet: another key would open nothing.
  if (!proven) write('salt', randomBytes(16));
  const salt = read('salt') ?? Buffer.alloc(0);
  const key =
    operator === undefined
      ? (readKeyFile(keyFile) ?? (proven ? undefined : createKeyFile(keyFile)))
      : operatorKey(operator, salt);
  if (!key) throw storeLocked('has no key', `restore ${keyFile}, or set identity.key if the key came from there`);
  const sealer = createSealer(key);
  if (!proven) write('proof', sealer.seal(proofText, proof));
  const found = read('proof');
  if (!found || sealer.open(found, proof) !== proofText)
    throw storeLocked(
      'was sealed with another key',
      'set identity.key to the key of this store, or remove it if a key file is used',
    );
  return sealer;
}

/**
 * Changes the store, and tries again while another process writes to it: tokens that have arrived cannot be requested again.
 * `isPassing`: which errors are worth another try.
 */
export async function storePatiently<T>(
  clock: Clock,
  change: () => T,
  { limitMs = changeMsMax, isPassing = isBusy } = {},
): Promise<T> {
  const deadlineAtMs = clock.nowMs() + limitMs;
  for (;;) {
    try {
      return change();
    } catch (error) {
      if (!isPassing(error) || clock.nowMs() >= deadlineAtMs) throw isHostError(error) ? error : unusableStore(error);
    }
    await sleep(clock, changeRetryMs);
  }
}

export const isBusy = (error: unknown): boolean => sqliteCode(error).startsWith('SQLITE_BUSY');

const unusableStore = (cause: unknown): HostError =>
  storeLocked(
    isBusy(cause) ? 'is in use' : 'cannot be used',
    'check that Hostler may write to it, then try again',
    cause,
  );
