/**
 * Schema of `broker` in the configuration. Without `url` this process is the broker; with `url` this host serves another broker
 * or NATS. Not here: keys of workers (keys.ts), the effect of the limits (broker/).
 * Invariant: an empty object is valid, and its defaults admit no other machine.
 */
import * as z from 'zod/mini';
import { listenEntry, port } from './listen-settings.js';

export const brokerPortDefault = 8384;

const path = z.string('must be a path').check(z.minLength(1, 'must not be empty'), z.maxLength(4_096, 'is too long'));
const count = (max: number, usual: number) =>
  z._default(
    z
      .int('must be a whole number')
      .check(z.minimum(1, `must be from 1 to ${max}`), z.maximum(max, `must be from 1 to ${max}`)),
    usual,
  );
const yesOrNo = z._default(z.boolean('must be true or false'), false);
const address = (pattern: RegExp, what: string) =>
  z.optional(z.string('must be an address').check(z.maxLength(2_048, 'is too long'), z.regex(pattern, what)));
const listen = z.extend(z.omit(listenEntry, { drain: true }), {
  port: z._default(port, brokerPortDefault),
  tls: z.optional(z.strictObject({ cert: path, key: path }, 'must be an object with cert and key')),
  /** Allows connections from other machines without TLS. The network can then read and change all messages. */
  insecure: yesOrNo,
});
const limits = z.strictObject({
  connections: count(100_000, 4_096),
  mailboxMessages: count(10_000_000, 10_000),
  mailboxBytes: count(64 * 1024 ** 3, 64 * 1024 ** 2),
  messagesPerSecond: count(1_000_000, 500),
  burst: count(1_000_000, 1_000),
  calls: count(100_000, 256),
  callsPerWorker: count(100_000, 64),
});
export const brokerEntry = z.strictObject({
  listen: z.prefault(listen, {}),
  url: address(/^(?:ws|wss|nats|tls):\/\/[^\s/]+/, 'must begin with ws://, wss://, nats:// or tls://'),
  /** Allows `url` without TLS to another machine, as `listen.insecure` does. */
  insecure: yesOrNo,
  keyFile: z.optional(path),
  /** NATS only. `process` accepts a server that loses acknowledged messages on a power loss. */
  durability: z._default(z.enum(['power', 'process'], 'must be power or process'), 'power'),
  /** NATS only. Number of copies of every stream in a cluster. */
  replicas: count(5, 1),
  /** NATS only. Address of the monitoring port, which reports whether the server syncs every write. */
  monitor: address(/^https?:\/\/[^\s/]+/, 'must begin with http:// or https://'),
  /** True: messages of the older format (broker/older-messages.ts) are accepted too. */
  compat: yesOrNo,
  limits: z.prefault(limits, {}),
});

export type BrokerSettings = Readonly<z.infer<typeof brokerEntry>>;
