/** The keys of the configuration that are for the broker, in the words of each engine. */
import type { Keys } from '../config/keys.js';
import type { Credential } from './embedded/credentials.js';
import type { NatsCredential } from './nats/nats-host-link.js';

const everybody = '*';

/** Those that a key's own text opens. */
export const credentialsOf = (keys: Keys): Credential[] =>
  [...keys].flatMap(([name, { digest, role, expiresAtMs, mail }]) => {
    if (!mail || digest === undefined) return [];
    const { mailbox, destinations } = mail;
    const kind = destinations.includes(everybody) ? ('host' as const) : ('worker' as const);
    const sendsTo = destinations.filter((each) => each !== everybody);
    return [{ name, digest, mailbox, role, kind, sendsTo, expiresAtMs }];
  });

/** Workers that NATS itself lets in: by mailbox, to which its permissions bind each. One with two keys is served as long as either. */
export function natsCredentialsOf(keys: Keys): Map<string, NatsCredential> {
  const found = new Map<string, NatsCredential>();
  for (const { role, expiresAtMs = Number.POSITIVE_INFINITY, mail } of keys.values()) {
    if (mail?.nkey === undefined || mail.destinations.includes(everybody)) continue;
    const other = found.get(mail.mailbox);
    const untilMs = Math.max(expiresAtMs, other ? (other.expiresAt?.getTime() ?? Number.POSITIVE_INFINITY) : 0);
    found.set(mail.mailbox, { role, expiresAt: untilMs === Number.POSITIVE_INFINITY ? undefined : new Date(untilMs) });
  }
  return found;
}
