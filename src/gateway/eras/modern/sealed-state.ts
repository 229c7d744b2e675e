/**
 * Encrypts `requestState`, because the state of a server may contain secrets, and binds it to a caller, a request and a time.
 * Layout, base64url: version (1) | nonce (12) | tag (16) | ciphertext.
 * Plaintext: kind (1) | expiry, ms (8) | caller digest (32) | request digest (32) | the sealed text.
 * The digests are encrypted, not GCM associated data. So "wrong caller" and "tampered" are reported as different faults.
 * Invariant: no plaintext is used before the GCM tag is verified.
 */
import { createCipheriv, createDecipheriv, createHash, randomBytes } from 'node:crypto';
import type { Clock } from '../../../kernel/clock.js';
import type { Principal } from '../../../policy/operation.js';
import type { StateFault } from '../../bridge/bridge-errors.js';

/** `relayed`: state of a modern server. `parked`: id and round of a parked call. `again`: the request is sent once more. */
export type StateKind = 'relayed' | 'parked' | 'again';

export interface StateOwner {
  readonly server: string;
  readonly principal: Principal;
  readonly identity: Buffer;
}

export type Opened = { readonly kind: StateKind; readonly text: string } | { readonly fault: StateFault };

export const stateLifeMs = 10 * 60_000;
const version = 1;
const nonceBytes = 12;
const tagBytes = 16;
const digestBytes = 32;
const headBytes = 1 + nonceBytes + tagBytes;
const insideBytes = 1 + 8 + 2 * digestBytes;
const kinds: readonly StateKind[] = ['relayed', 'parked', 'again'];

export class StateSeal {
  readonly #clock: Clock;
  /** The key exists only in memory: after a restart, or in another process, a state cannot be opened. */
  readonly #key = randomBytes(32);

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  seal(kind: StateKind, text: string, owner: StateOwner): string {
    const inside = Buffer.alloc(insideBytes);
    inside[0] = kinds.indexOf(kind);
    inside.writeDoubleBE(this.#clock.date().getTime() + stateLifeMs, 1);
    callerDigest(owner).copy(inside, 9);
    requestDigest(owner).copy(inside, 9 + digestBytes);
    const nonce = randomBytes(nonceBytes);
    const cipher = createCipheriv('aes-256-gcm', this.#key, nonce);
    const sealed = [cipher.update(inside), cipher.update(text, 'utf8'), cipher.final()];
    return Buffer.concat([Buffer.of(version), nonce, cipher.getAuthTag(), ...sealed]).toString('base64url');
  }

  open(state: string, owner: StateOwner): Opened {
    const bytes = Buffer.from(state, 'base64url');
    // Node decodes leniently, so other encodings of the same bytes are refused here.
    if (bytes.length < headBytes + insideBytes || bytes[0] !== version || bytes.toString('base64url') !== state)
      return { fault: 'tampered' };
    const inside = this.#decrypted(bytes);
    if (!inside) return { fault: 'tampered' };
    if (!callerDigest(owner).equals(inside.subarray(9, 9 + digestBytes))) return { fault: 'other_caller' };
    if (!requestDigest(owner).equals(inside.subarray(9 + digestBytes, insideBytes))) return { fault: 'other_request' };
    if (this.#clock.date().getTime() >= inside.readDoubleBE(1)) return { fault: 'expired' };
    return { kind: kinds[inside[0] as number] as StateKind, text: inside.toString('utf8', insideBytes) };
  }

  #decrypted(bytes: Buffer): Buffer | undefined {
    const decipher = createDecipheriv('aes-256-gcm', this.#key, bytes.subarray(1, 1 + nonceBytes), {
      authTagLength: tagBytes,
    });
    decipher.setAuthTag(bytes.subarray(1 + nonceBytes, headBytes));
    try {
      return Buffer.concat([decipher.update(bytes.subarray(headBytes)), decipher.final()]);
    } catch {
      return undefined;
    }
  }
}

// JSON separates the names unambiguously.
const callerDigest = ({ server, principal }: StateOwner): Buffer =>
  sha256(JSON.stringify([server, principal.id, principal.role ?? null]));

const requestDigest = ({ identity }: StateOwner): Buffer => sha256(identity);

const sha256 = (text: string | Buffer): Buffer => createHash('sha256').update(text).digest();
