/**
 * A key as a text: how one is made, and the digest by which it is known where its text must not be kept.
 * Not here: what a key opens (keys.ts), where its text lies (gateway/keys/local-key.ts, broker/key-file.ts).
 */
import { hash, randomBytes } from 'node:crypto';

const prefix = 'hk_';
const keyBytes = 32;

export const newKey = (): string => `${prefix}${randomBytes(keyBytes).toString('base64url')}`;

/** SHA-256 in base64url without padding, as `KeyEntry.digest` has it. */
export const digestOf = (key: string): string => hash('sha256', key, 'base64url');
