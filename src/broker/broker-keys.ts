/**
 * The keys of the configuration that are for the broker, in the words of each engine.
 * Not here: reading them (config/keys.ts), checking one that was presented (embedded/credentials.ts, or the NATS server itself).
 *
 * Invariant: a key that opens the gateway opens no broker.
 */
import { isHostKey, type Keys } from '../config/keys.js';
import { everyMailbox } from '../config/values.js';
import type { Credential } from './embedded/credentials.js';
import type { NatsCredential } from './nats/nats-host-link.js';

/** Those that a key's own text opens. */
export const credentialsOf = (keys: Keys): Credential[] =>
  [...keys].flatMap(([name, { digest, role, expiresAtMs, mail }]) => {
    if (!mail || digest === undefined) return [];
    const { mailbox, destinations } = mail;
    const kind = isHostKey(mail) ? ('host' as const) : ('worker' as const);
    const sendsTo = destinations.filter((each) => each !== everyMailbox);
    return [{ name, digest, mailbox, role, kind, sendsTo, expiresAtMs }];
  });

/** Workers that NATS itself lets in: by mailbox, to which its permissions bind each. One with two keys is served as long as either. */
export function natsCredentialsOf(keys: Keys): Map<string, NatsCredential> {
  const found = new Map<string, NatsCredential>();
  for (const { role, expiresAtMs = Number.POSITIVE_INFINITY, mail } of keys.values()) {
    if (mail?.nkey === undefined || isHostKey(mail)) continue;
    const other = found.get(mail.mailbox);
    const untilMs = Math.max(expiresAtMs, other ? (other.expiresAt?.getTime() ?? Number.POSITIVE_INFINITY) : 0);
    found.set(mail.mailbox, { role, expiresAt: untilMs === Number.POSITIVE_INFINITY ? undefined : new Date(untilMs) });
  }
  return found;
}
