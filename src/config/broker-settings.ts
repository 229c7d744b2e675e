/**
 * Schema of `broker` in the configuration. Without `url` this process is the broker; with `url` this host serves another broker
 * or NATS. Not here: keys of workers (keys.ts), the effect of the limits (broker/).
 * Invariant: an empty object is valid, and its defaults admit no other machine.
 */
import { z } from 'zod';
import { listenEntry } from './listen-settings.js';

export const brokerPortDefault = 8384;

const path = z.string('must be a path').min(1, 'must not be empty').max(4_096, 'is too long');
const count = (max: number) =>
  z.int('must be a whole number').min(1, `must be from 1 to ${max}`).max(max, `must be from 1 to ${max}`);
const listen = listenEntry.omit({ drain: true }).extend({
  port: listenEntry.shape.port.removeDefault().default(brokerPortDefault),
  tls: z.strictObject({ cert: path, key: path }, 'must be an object with cert and key').optional(),
  /** Allows connections from other machines without TLS. The network can then read and change all messages. */
  insecure: z.boolean('must be true or false').default(false),
});
const limits = z.strictObject({
  connections: count(100_000).default(4_096),
  mailboxMessages: count(10_000_000).default(10_000),
  mailboxBytes: count(64 * 1024 ** 3).default(64 * 1024 ** 2),
  messagesPerSecond: count(1_000_000).default(500),
  burst: count(1_000_000).default(1_000),
  calls: count(100_000).default(256),
  callsPerWorker: count(100_000).default(64),
});
export const brokerEntry = z.strictObject({
  listen: listen.prefault({}),
  url: z
    .string('must be an address')
    .max(2_048, 'is too long')
    .regex(/^(?:ws|wss|nats|tls):\/\/[^\s/]+/, 'must begin with ws://, wss://, nats:// or tls://')
    .optional(),
  /** Allows `url` without TLS to another machine, as `listen.insecure` does. */
  insecure: z.boolean('must be true or false').default(false),
  keyFile: path.optional(),
  /** NATS only. `process` accepts a server that loses acknowledged messages on a power loss. */
  durability: z.enum(['power', 'process'], 'must be power or process').default('power'),
  /** NATS only. Number of copies of every stream in a cluster. */
  replicas: count(5).default(1),
  /** NATS only. Address of the monitoring port, which reports whether the server syncs every write. */
  monitor: z
    .string('must be an address')
    .max(2_048, 'is too long')
    .regex(/^https?:\/\/[^\s/]+/, 'must begin with http:// or https://')
    .optional(),
  /** True: messages of the older format (broker/older-messages.ts) are accepted too. */
  compat: z.boolean('must be true or false').default(false),
  limits: limits.prefault({}),
});

export type BrokerSettings = Readonly<z.infer<typeof brokerEntry>>;
