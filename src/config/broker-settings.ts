/**
 * `broker` of the configuration: whether workers on other machines may use the servers, and through what.
 * Without `url` the broker is this process, listening for workers; with it, another one or NATS, which this host serves.
 * Not here: who may come in (keys.ts), what the limits do (broker/).
 *
 * Invariant: an empty object is a whole configuration; what it leaves out lets nobody in from another machine.
 */
import { z } from 'zod';
import { madeOnce } from '../kernel/made-once.js';
import { listenEntry } from './listen-settings.js';

/** One above the gateway's. */
export const brokerPortDefault = 8384;

/** Made for those who have one. */
export const brokerEntry = madeOnce(() => {
  const path = z.string('must be a path').min(1, 'must not be empty').max(4_096, 'is too long');
  const count = (max: number) =>
    z.int('must be a whole number').min(1, `must be from 1 to ${max}`).max(max, `must be from 1 to ${max}`);
  const listen = listenEntry.omit({ drain: true }).extend({
    port: listenEntry.shape.port.removeDefault().default(brokerPortDefault),
    tls: z.strictObject({ cert: path, key: path }, 'must be an object with cert and key').optional(),
    /** Beyond this machine without TLS: whoever is in between reads and changes everything. */
    insecure: z.boolean('must be true or false').default(false),
  });
  const limits = z.strictObject({
    connections: count(100_000).default(4_096),
    mailboxMessages: count(10_000_000).default(10_000),
    mailboxBytes: count(64 * 1024 ** 3).default(64 * 1024 ** 2),
    messagesPerSecond: count(1_000_000).default(500),
    burst: count(1_000_000).default(1_000),
    calls: count(100_000).default(256),
    callsOfOne: count(100_000).default(64),
  });
  return z.strictObject({
    listen: listen.prefault({}),
    url: z
      .string('must be an address')
      .max(2_048, 'is too long')
      .regex(/^(?:ws|wss|nats|tls):\/\/[^\s/]+/, 'must begin with ws://, wss://, nats:// or tls://')
      .optional(),
    /** Of `url`: without TLS beyond this machine, as for `listen`. */
    insecure: z.boolean('must be true or false').default(false),
    keyFile: path.optional(),
    /** Of NATS: `process` takes a server that loses what it acknowledged when its machine loses power. */
    durability: z.enum(['power', 'process'], 'must be power or process').default('power'),
    /** Of NATS: copies of every stream in a cluster. */
    replicas: count(5).default(1),
    /** Of NATS: where its monitoring port says whether it syncs every write. */
    monitor: z
      .string('must be an address')
      .max(2_048, 'is too long')
      .regex(/^https?:\/\/[^\s/]+/, 'must begin with http:// or https://')
      .optional(),
    /** Messages of the older shape are taken too. */
    compat: z.boolean('must be true or false').default(false),
    limits: limits.prefault({}),
  });
});

export type BrokerSettings = Readonly<z.infer<ReturnType<typeof brokerEntry>>>;
