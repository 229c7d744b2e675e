/**
 * Seals secret columns of identity.db with AES-256-GCM, and obtains the key: text of the operator, or a 0600 file.
 * Not here: the columns and rows (identity-store.ts).
 * Invariants: place (table, row, column, generation) is authenticated, so a value that was moved does not open. A key file
 * appears with its whole content and is never replaced.
 */
import { createCipheriv, createDecipheriv, randomBytes, scryptSync } from 'node:crypto';
import { closeSync, fstatSync, openSync, readFileSync } from 'node:fs';
import { createOnce } from '../kernel/create-once.js';
import { HostError } from '../kernel/errors.js';
import { storeLocked } from './identity-errors.js';

const keyBytes = 32;
const nonceBytes = 12;
const tagBytes = 16;
const formatVersion = 1;
const headBytes = 1 + nonceBytes + tagBytes;

/** 32 bytes in base64 or base64url. */
const keyText = /^[A-Za-z0-9+/_-]{43}=?$/;
const passphraseCharsMin = 16;
const scryptCost = { N: 2 ** 15, r: 8, p: 1, maxmem: 64 * 1024 * 1024 };

export interface Sealer {
  seal(text: string, place: readonly (string | number)[]): Buffer;
  /** Undefined: wrong key, another place, or changed bytes. */
  open(sealed: Buffer, place: readonly (string | number)[]): string | undefined;
}

export function createSealer(key: Buffer): Sealer {
  const placeOf = (place: readonly (string | number)[]) => Buffer.from(JSON.stringify(place));
  return {
    seal(text, place) {
      const nonce = randomBytes(nonceBytes);
      const cipher = createCipheriv('aes-256-gcm', key, nonce);
      cipher.setAAD(placeOf(place));
      const body = Buffer.concat([cipher.update(text, 'utf8'), cipher.final()]);
      return Buffer.concat([Buffer.of(formatVersion), nonce, cipher.getAuthTag(), body]);
    },
    open(sealed, place) {
      if (sealed.length < headBytes || sealed[0] !== formatVersion) return undefined;
      const decipher = createDecipheriv('aes-256-gcm', key, sealed.subarray(1, 1 + nonceBytes), {
        authTagLength: tagBytes,
      });
      decipher.setAAD(placeOf(place));
      decipher.setAuthTag(sealed.subarray(1 + nonceBytes, headBytes));
      try {
        return decipher.update(sealed.subarray(headBytes), undefined, 'utf8') + decipher.final('utf8');
      } catch {
        return undefined;
      }
    },
  };
}

/** The key of an operator: 32 bytes in base64, or a passphrase. */
export function operatorKey(text: string, salt: Buffer): Buffer {
  if (keyText.test(text)) return Buffer.from(text, 'base64');
  if (text.length < passphraseCharsMin)
    throw new HostError('invalid_spec', `identity.key: is shorter than ${passphraseCharsMin} characters`, {
      field: 'identity.key',
      hint: 'write 32 random bytes in base64 (openssl rand -base64 32), or a longer passphrase',
    });
  return scryptSync(text, salt, keyBytes, scryptCost);
}

/** Undefined: there is no such file. Throws if it is not a key, or if other users may read it. */
export function readKeyFile(file: string): Buffer | undefined {
  let descriptor: number;
  try {
    descriptor = openSync(file, 'r');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw storeLocked('has a key file that cannot be read', `allow Hostler to read ${file}`, error);
  }
  try {
    if ((fstatSync(descriptor).mode & 0o077) !== 0)
      throw storeLocked('has a key file that other users can read', `chmod 600 ${file}`);
    const text = readFileSync(descriptor, 'utf8').trim();
    if (!keyText.test(text))
      throw storeLocked('has a key file that holds no key', 'restore it from a backup, or remove it with identity.db');
    return Buffer.from(text, 'base64');
  } finally {
    closeSync(descriptor);
  }
}

/** Creates the file, or returns the key that another process has just created. */
export function createKeyFile(file: string): Buffer {
  createOnce(file, `${randomBytes(keyBytes).toString('base64')}\n`);
  const key = readKeyFile(file);
  if (!key) throw storeLocked('has a key file that was just removed', 'try again');
  return key;
}
