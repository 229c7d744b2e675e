/**
 * What a NATS server must hold for us, and whether it does: made where it is missing, compared where it is there.
 * Not here: names (nats-names.ts), what goes into it.
 *
 * Invariant: nothing is used whose settings could lose what was acknowledged, unless the configuration says so in words.
 */
import { HostError } from '../../kernel/errors.js';
import { messageBytesMax } from '../ports.js';
import type { NatsConnection } from './nats-connection.js';
import { syncsEveryWrite } from './nats-monitor.js';
import { hostsConsumer, type MailboxNames, type Names, workerConsumer } from './nats-names.js';

/** `power`: what was acknowledged outlives a loss of power. `process`: it outlives the death of the server's process. */
type Durability = 'power' | 'process';

export interface StreamPlan {
  readonly durability: Durability;
  /** `http://host:8222`, where the server says whether it syncs every write. */
  readonly monitorUrl: string | undefined;
  /** Copies of every stream, in a cluster. */
  readonly replicas: number;
  /** After so long without a word of its host, a request is handed out again. */
  readonly ackWaitMs: number;
  readonly requestsMax: number;
  readonly requestBytesMax: number;
  readonly claimsMax: number;
  readonly claimBytesMax: number;
  readonly replyBytesMax: number;
}

const MiB = 1024 * 1024;

export const streamDefaults: StreamPlan = {
  durability: 'power',
  monitorUrl: undefined,
  replicas: 1,
  ackWaitMs: 30_000,
  requestsMax: 10_000,
  requestBytesMax: 64 * MiB,
  claimsMax: 250_000,
  claimBytesMax: 64 * MiB,
  replyBytesMax: 256 * MiB,
};

/** What is around a message. */
export const headBytes = 64 * 1024;
const secondNs = 1_000_000_000;
/** A caller's key is remembered for a day from its deadline, and nothing of it longer than this. */
const keptNs = 50 * 3_600 * secondNs;
const deadMax = 10_000;
const reasonsMax = 100_000;
/** A reply that went out on a connection that is gone comes again after this. */
const replyAckWaitNs = 3 * secondNs;

type Config = Readonly<Record<string, unknown>>;
interface ApiError {
  readonly error?: { readonly code: number; readonly err_code: number; readonly description: string };
}

export async function ensureShared(connection: NatsConnection, names: Names, plan: StreamPlan): Promise<void> {
  await requireServer(connection, plan);
  const { prefix } = names;
  await ensureStream(connection, names.deadStream, {
    ...common(plan),
    subjects: [`${prefix}.dead.*.*`],
    max_msgs: deadMax,
    max_bytes: 256 * MiB,
    discard: 'new',
    allow_direct: true,
  });
  await ensureStream(connection, names.reasonStream, {
    ...common(plan),
    subjects: [`${prefix}.reason.*.*`],
    max_msgs: reasonsMax,
    max_bytes: 64 * MiB,
    max_msgs_per_subject: 8,
    max_age: keptNs,
    discard: 'old',
  });
  await ensureStream(connection, names.manifestStream, {
    ...common(plan),
    subjects: [`${prefix}.manifest.*`],
    max_bytes: 256 * MiB,
    max_msgs_per_subject: 1,
    discard: 'new',
    allow_direct: true,
  });
}

export async function ensureMailbox(connection: NatsConnection, names: MailboxNames, plan: StreamPlan): Promise<void> {
  // The same key twice is refused by the server itself, for as long as the first is there.
  const once = { max_msgs_per_subject: 1, discard: 'new', discard_new_per_subject: true, max_age: keptNs };
  await Promise.all([
    ensureStream(connection, names.requestStream, {
      ...common(plan),
      ...once,
      subjects: [`${names.requests}*`],
      retention: 'workqueue',
      max_msgs: plan.requestsMax,
      max_bytes: plan.requestBytesMax,
    }),
    ensureStream(connection, names.claimStream, {
      ...common(plan),
      ...once,
      subjects: [`${names.claims}*`, `${names.claims}*.*`],
      max_msgs: plan.claimsMax,
      max_bytes: plan.claimBytesMax,
      allow_direct: true,
    }),
    ensureStream(connection, names.replyStream, {
      ...common(plan),
      ...once,
      subjects: [`${names.records}*`, `${names.mail}*.*`, `${names.bundleRecords}*.*`],
      max_bytes: plan.replyBytesMax,
      allow_direct: true,
    }),
  ]);
  await Promise.all([
    ensureConsumer(connection, names.requestStream, hostsConsumer, {
      ack_policy: 'explicit',
      ack_wait: plan.ackWaitMs * 1_000_000,
      // Who counts is the host: a request that the server gives up by itself would lie there unseen.
      max_deliver: -1,
      max_ack_pending: 4_096,
      max_waiting: 512,
    }),
    ensureConsumer(connection, names.replyStream, workerConsumer, {
      deliver_subject: names.outbox,
      ack_policy: 'explicit',
      ack_wait: replyAckWaitNs,
      max_deliver: -1,
      max_ack_pending: 1_024,
    }),
  ]);
}

export async function readDepth(
  connection: NatsConnection,
  { mailbox, requestStream }: MailboxNames,
): Promise<{ readonly mailbox: string; readonly count: number; readonly bytes: number }> {
  const info = await connection.api<{ state?: { messages: number; bytes: number } }>(`STREAM.INFO.${requestStream}`);
  return { mailbox, count: info.state?.messages ?? 0, bytes: info.state?.bytes ?? 0 };
}

const common = (plan: StreamPlan) => ({
  retention: 'limits',
  storage: 'file',
  num_replicas: plan.replicas,
  max_msg_size: messageBytesMax + headBytes,
});

/** Up to 2.9 a server cannot be told to sync at every write, and no server tells its clients whether it does. */
async function requireServer(connection: NatsConnection, plan: StreamPlan): Promise<void> {
  const { maxPayload, version, hasJetStream, serverId } = connection;
  const [major = 0, minor = 0] = version.split('.').map(Number);
  if (!hasJetStream) throw unsafe('the NATS server keeps no messages', 'switch JetStream on in its configuration');
  if (major < 2 || (major === 2 && minor < 9))
    throw unsafe(`the NATS server is ${version}`, 'use 2.9 or newer, which refuses a second message of the same key');
  if (maxPayload < messageBytesMax + headBytes)
    throw unsafe(
      `the NATS server takes messages of ${maxPayload} bytes`,
      `set max_payload: ${messageBytesMax + headBytes} in its configuration`,
    );
  if (plan.durability !== 'power' || plan.replicas >= 3) return;
  if (plan.monitorUrl !== undefined && (await syncsEveryWrite(plan.monitorUrl, serverId))) return;
  throw unsafe(
    `the NATS server ${version} may lose what it acknowledged when its machine loses power`,
    "use replicas: 3 in a cluster, or sync_interval: always with its monitoring port named, or accept it with durability: 'process'",
  );
}

async function ensureStream(connection: NatsConnection, name: string, wanted: Config): Promise<void> {
  const config = { name, ...wanted };
  let found = await connection.api<ApiError & { config?: Config }>(`STREAM.INFO.${name}`);
  // Another host may make the same one meanwhile: the server takes that for the same request.
  if (found.error?.code === 404) found = await connection.api(`STREAM.CREATE.${name}`, config);
  // Of an earlier version, which had fewer subjects: more of them change nothing of what is there.
  if (found.config !== undefined && lacksSubjects(found.config, wanted)) {
    requireSame(`stream '${name}'`, found, { ...wanted, subjects: found.config.subjects });
    found = await connection.api(`STREAM.UPDATE.${name}`, { ...found.config, subjects: wanted.subjects });
  }
  requireSame(`stream '${name}'`, found, wanted);
}

function lacksSubjects({ subjects: actual }: Config, { subjects: wanted }: Config): boolean {
  if (!Array.isArray(actual) || !Array.isArray(wanted)) return false;
  return actual.length < wanted.length && actual.every((each) => wanted.includes(each));
}

async function ensureConsumer(connection: NatsConnection, stream: string, name: string, wanted: Config): Promise<void> {
  let found = await connection.api<ApiError & { config?: Config }>(`CONSUMER.INFO.${stream}.${name}`);
  if (found.error?.code === 404)
    found = await connection.api(`CONSUMER.DURABLE.CREATE.${stream}.${name}`, {
      stream_name: stream,
      config: { durable_name: name, deliver_policy: 'all', ...wanted },
    });
  requireSame(`consumer '${name}' of stream '${stream}'`, found, wanted);
}

function requireSame(what: string, found: ApiError & { config?: Config }, wanted: Config): void {
  if (found.error !== undefined)
    throw unsafe(`${what} cannot be made: ${found.error.description}`, "look at the server's limits for JetStream");
  for (const [field, value] of Object.entries(wanted)) {
    // What is at its default the server leaves out.
    const actual = found.config?.[field] ?? (value === false ? false : undefined);
    if (JSON.stringify(actual) === JSON.stringify(value)) continue;
    throw new HostError(
      'invalid_spec',
      `${what} has ${field} ${JSON.stringify(actual) ?? 'unset'} instead of ${JSON.stringify(value)}`,
      { field, hint: 'remove or change it on the NATS server, or use another prefix' },
    );
  }
}

const unsafe = (message: string, hint: string): HostError => new HostError('invalid_spec', message, { hint });
