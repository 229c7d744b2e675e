/**
 * Schema of `broker` in the configuration. Without `url` workers connect to this process; with `url` they connect to NATS, which
 * several hosts may serve. Not here: keys of workers (keys.ts), the effect of the limits (broker/).
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
const listen = z.extend(z.omit(listenEntry, { drain: true, tls: true }), {
  port: z._default(port, brokerPortDefault),
  tls: z.optional(z.strictObject({ cert: path, key: path }, 'must be an object with cert and key')),
  /** Allows connections from other machines without TLS. The network can then read and change all messages. */
  insecure: yesOrNo,
});
const limits = z.strictObject({
  connections: count(100_000, 4_096),
  /** Maximum of calls of one worker that run at the same time. A worker never sends more than 192. */
  callsPerWorker: count(192, 64),
  /** Bytes that are read from one worker in a second. Has no effect with NATS. */
  bytesPerSecond: count(1024 ** 3, 16 * 1024 ** 2),
});

const separateBroker =
  'must be the address of a NATS server (nats:// or tls://); without NATS leave it out, and workers connect to hostler up';

export const brokerEntry = z.strictObject({
  listen: z.prefault(listen, {}),
  url: z.optional(
    z.string('must be an address').check(
      z.maxLength(2_048, 'is too long'),
      z.refine((url) => !/^wss?:/i.test(url), { error: separateBroker, abort: true }),
      z.regex(/^(?:nats|tls):\/\/[^\s/]+$/, 'must begin with nats:// or tls:// and name a server'),
    ),
  ),
  /** Allows `url` without TLS to another machine, as `listen.insecure` does. */
  insecure: yesOrNo,
  /** NATS only. File with the key of this host. */
  keyFile: z.optional(path),
  /** NATS only. `process` accepts a server that loses acknowledged messages on a power loss. */
  durability: z._default(z.enum(['power', 'process'], 'must be power or process'), 'power'),
  /** NATS only. Number of copies in a cluster. */
  replicas: count(5, 1),
  /** NATS only. Accepts `replicas` on nats-server before 2.11, where two hosts may run the same call after a leader change. */
  unsafeReplicas: yesOrNo,
  /** NATS only. Address of the monitoring port, which reports whether the server syncs every write. */
  monitor: z.optional(
    z
      .string('must be an address')
      .check(z.maxLength(2_048, 'is too long'), z.regex(/^https?:\/\/[^\s/]+/, 'must begin with http:// or https://')),
  ),
  limits: z.prefault(limits, {}),
});

/** Members of earlier versions, and what to write instead. */
export const removedBrokerMembers: Readonly<Record<string, string>> = {
  compat: 'remove it; workers of the first protocol need that version of Hostler',
  'limits.mailboxMessages': 'remove it; a worker may have 256 calls whose replies it has not acknowledged',
  'limits.mailboxBytes': 'remove it; a worker may have 64 MiB of replies that it has not acknowledged',
  'limits.messagesPerSecond': 'write limits.bytesPerSecond instead',
  'limits.burst': 'write limits.bytesPerSecond instead',
  'limits.calls': 'write limits.callsPerWorker instead; the fair queue of each server bounds all calls',
};

export type BrokerSettings = Readonly<z.infer<typeof brokerEntry>>;
