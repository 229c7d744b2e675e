/**
 * Who a key belongs to, and what its holder may do: the only source of mailbox, role and kind in this broker.
 * Not here: reading the configuration, cutting those whose key is gone (broker-core.ts).
 *
 * Keys are looked up by their SHA-256: how long that takes tells something of the hash of what was presented, which whoever
 * presents it can compute, and nothing of a key.
 * Invariants: a key is hashed where it comes in and kept nowhere; every reason to refuse one looks the same from outside.
 */
import { digestOf } from '../../config/keys.js';
import { HostError } from '../../kernel/errors.js';
import { hostMailbox, mailboxPattern, type Sender } from '../ports.js';
import { keyCharsMax } from './limits.js';

export interface Credential {
  /** For operators. */
  readonly name: string;
  /** SHA-256 of the key, in base64url without padding (config/keys.ts). */
  readonly digest: string;
  readonly mailbox: string;
  readonly role: string | undefined;
  /** A host takes requests and may send to every mailbox; a worker sends requests to `sendsTo` only. */
  readonly kind: 'host' | 'worker';
  readonly sendsTo: readonly string[];
  /** By the wall, in ms since 1970. */
  readonly expiresAtMs: number | undefined;
}

/** What a hello says of itself; it may leave out what the key says anyway, but not say otherwise. */
export interface Claim {
  readonly key: string;
  readonly mailbox: string | undefined;
  readonly role: string | undefined;
}

export class Credentials {
  readonly #byDigest = new Map<string, Credential>();
  readonly #ofMailbox = new Map<string, Credential[]>();

  /** Throws when it cannot be said who somebody is. */
  constructor(credentials: readonly Credential[]) {
    const kinds = new Map<string, Credential>();
    for (const credential of credentials) {
      const { name, mailbox, digest, kind, role } = credential;
      for (const box of [mailbox, ...credential.sendsTo])
        if (!mailboxPattern.test(box)) throw wrong(name, 'names a mailbox that cannot be one');
      if (kind === 'worker' && mailbox === hostMailbox) throw wrong(name, 'is a worker and has the mailbox of hosts');
      if (this.#byDigest.has(digest)) throw wrong(name, 'has the key of another');
      // Two keys for one mailbox are how a key is changed without a gap; they must say the same of it.
      const other = kinds.get(mailbox);
      if (other && (other.kind !== kind || other.role !== role))
        throw wrong(name, `has the mailbox of '${other.name}' but not its role`);
      kinds.set(mailbox, credential);
      const own = Object.freeze({ ...credential });
      this.#byDigest.set(digest, own);
      this.#ofMailbox.set(mailbox, [...(this.#ofMailbox.get(mailbox) ?? []), own]);
    }
  }

  /** Undefined for every reason there is. */
  admit({ key, mailbox, role }: Claim, wallMs: number): Credential | undefined {
    const found = key.length > keyCharsMax ? undefined : this.#byDigest.get(digestOf(key));
    if (found === undefined || isOver(found, wallMs)) return undefined;
    if (mailbox !== undefined && mailbox !== found.mailbox) return undefined;
    return role !== undefined && role !== found.role ? undefined : found;
  }

  /** Whether somebody who was let in with it would be let in as the same now. */
  stillHolds(credential: Credential, wallMs: number): boolean {
    const now = this.#byDigest.get(credential.digest);
    return (
      now !== undefined &&
      !isOver(now, wallMs) &&
      now.mailbox === credential.mailbox &&
      now.role === credential.role &&
      now.kind === credential.kind &&
      now.sendsTo.length === credential.sendsTo.length &&
      now.sendsTo.every((box, at) => box === credential.sendsTo[at])
    );
  }

  /** Whether anybody could ever read it. */
  owns(mailbox: string): boolean {
    return this.#ofMailbox.has(mailbox);
  }

  /** Whether somebody could say something now as whom it was said. */
  speaksAs({ mailbox, role }: Sender, wallMs: number): boolean {
    const own = this.#ofMailbox.get(mailbox) ?? [];
    return own.some((each) => each.role === role && !isOver(each, wallMs));
  }

  /** Whether whoever has the mailbox by these is what it is by the others. */
  isSameOwner(mailbox: string, others: Credentials): boolean {
    const [now] = this.#ofMailbox.get(mailbox) ?? [];
    const [then] = others.#ofMailbox.get(mailbox) ?? [];
    return now?.role === then?.role && now?.kind === then?.kind;
  }

  /** By the wall; undefined when none ends after that instant. */
  nextExpiryMs(wallMs: number): number | undefined {
    let next: number | undefined;
    for (const { expiresAtMs } of this.#byDigest.values())
      if (expiresAtMs !== undefined && expiresAtMs > wallMs && (next === undefined || expiresAtMs < next))
        next = expiresAtMs;
    return next;
  }
}

const isOver = ({ expiresAtMs }: Credential, wallMs: number): boolean =>
  expiresAtMs !== undefined && wallMs >= expiresAtMs;

const wrong = (name: string, what: string): HostError =>
  new HostError('invalid_spec', `broker key '${name}': ${what}`, {
    field: `broker.keys.${name}`,
    execution: 'not_executed',
    hint: 'correct the configuration and try again',
  });
