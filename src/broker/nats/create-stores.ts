/**
 * What a host requires of a NATS server before it uses it, and the buckets and the stream that it makes there.
 * Invariants: a server is used only if its own monitoring port says that it syncs every write, or if the configuration accepts less
 * (`durability: 'process'`). A store with other settings is refused with the difference, never changed: it may belong to an operator.
 */
import type { DiscardPolicy, JetStreamManager, RetentionPolicy, StorageType, StreamConfig } from '@nats-io/jetstream';
import { type HostError, notExecuted } from '../../kernel/errors.js';
import { bodiesStream, callsBucket, keysBucket, streamOf } from './names.js';
import type { NatsConnection } from './nats-client.js';
import { payloadBytes } from './server-config.js';

export interface StartCheckOptions {
  readonly durability: 'power' | 'process';
  readonly replicas: number;
  /** Monitoring port of the server. */
  readonly monitor: string | undefined;
  /** Allows more than one replica on nats-server before 2.11, which may accept two creations of one row. */
  readonly unsafeReplicas?: boolean | undefined;
}

const answerMs = 5_000;

export async function checkServer({ info }: NatsConnection, options: StartCheckOptions): Promise<void> {
  const { durability, replicas, monitor, unsafeReplicas } = options;
  if (!info) throw refused('url', 'the NATS server sent no INFO', 'check the address');
  const { version, max_payload: limit, jetstream, server_id: serverId } = info;
  if (jetstream !== true) throw refused('jetstream', 'is not enabled in nats-server', useOutput);
  if (limit < payloadBytes) {
    const hint = `set max_payload: ${payloadBytes} in the configuration of nats-server`;
    throw refused('max_payload', `nats-server has ${limit} bytes, at least ${payloadBytes} are needed`, hint);
  }
  if (replicas > 1 && isOlder(version, [2, 11]) && !unsafeReplicas) {
    const what = `${replicas} needs nats-server 2.11; ${version} may let two hosts run one call after a leader change`;
    const hint = 'upgrade nats-server, set broker.replicas to 1, or accept it with broker.unsafeReplicas';
    throw refused('broker.replicas', what, hint);
  }
  if (durability === 'process') return;
  if (monitor !== undefined && (await syncsEveryWrite(monitor, serverId))) return;
  throw refused(
    'broker.durability',
    'nats-server acknowledges writes before they are on disk, so it may forget calls when the machine loses power',
    "set sync_interval: always (nats-server 2.10) and broker.monitor, or accept it with broker.durability: 'process'",
  );
}

async function syncsEveryWrite(monitor: string, serverId: string): Promise<boolean> {
  let varz: { server_id?: unknown; jetstream?: { config?: { sync_always?: unknown } } };
  try {
    const response = await fetch(new URL('/varz', monitor), { signal: AbortSignal.timeout(answerMs) });
    varz = (await response.json()) as typeof varz;
  } catch (cause) {
    const facts = { field: 'broker.monitor', reason: 'unreachable', cause };
    const message = 'broker.monitor: the monitoring port of nats-server does not answer';
    throw notExecuted(
      'connect_failed',
      message,
      'set http in the configuration of nats-server, and name that port in broker.monitor',
      facts,
    );
  }
  if (varz.server_id !== serverId) {
    const hint = 'name the monitoring port of the server in broker.url';
    throw refused('broker.monitor', 'belongs to another nats-server', hint);
  }
  return varz.jetstream?.config?.sync_always === true;
}

function isOlder(version: string, [major, minor]: readonly [number, number]): boolean {
  const [a = 0, b = 0] = version.split('.').map((part) => Number.parseInt(part, 10));
  return a < major || (a === major && b < minor);
}

const refused = (field: string, what: string, hint: string, cause?: unknown): HostError =>
  notExecuted('invalid_spec', `${field}: ${what}`, hint, { field, cause });

const useOutput = 'use the output of hostler key nats as the configuration of nats-server';

const MiB = 1024 * 1024;
const minuteNs = 60_000_000_000;

/** Time after which NATS removes rows, also those of a host that has ended. */
const rowMinutes = 15;
/** Size of each bucket, and of the stream of bodies. */
export const storeBytes = 256 * MiB;

type Settings = Pick<StreamConfig, 'name' | 'subjects' | 'max_age' | 'max_msgs_per_subject'> & Partial<StreamConfig>;

const storeSettings = (replicas: number): readonly Settings[] => {
  const stream = (name: string, subject: string, minutes: number, perSubject: number) => ({
    ...{ name, subjects: [subject], max_age: minutes * minuteNs, max_msgs_per_subject: perSubject },
    ...{ storage: 'file' as StorageType, retention: 'limits' as RetentionPolicy, discard: 'new' as DiscardPolicy },
    // Other buckets forbid removal by sequence (`deny_delete`). These allow it, because a delete marker would take room until it expires.
    ...{ max_bytes: storeBytes, num_replicas: replicas, deny_delete: false },
  });
  const bucket = (name: string, minutes: number): Settings => ({
    ...{ ...stream(streamOf(name), `$KV.${name}.>`, minutes, 1), allow_rollup_hdrs: true },
  });
  return [
    // Deadlines are at most 10 minutes after the first write of a row, and rows stay at least a minute longer.
    bucket(callsBucket, rowMinutes),
    bucket(keysBucket, 25 * 60),
    { ...stream(bodiesStream, 'hostler.body.>', rowMinutes, -1), allow_direct: true },
  ];
};

export async function createStores(jsm: JetStreamManager, replicas: number): Promise<void> {
  for (const settings of storeSettings(replicas)) {
    try {
      await jsm.streams.add(settings);
    } catch (error) {
      throw await creationError(jsm, settings, error);
    }
  }
}

async function creationError(jsm: JetStreamManager, settings: Settings, cause: unknown): Promise<unknown> {
  const { code } = cause as { code?: unknown };
  const { name } = settings;
  if (code === 10047 || code === 10023 || /insufficient|maximum/i.test(String(cause))) {
    const what = `nats-server has no room for '${name}' (${storeBytes / MiB} MiB)`;
    return refused('max_file', what, 'set max_file to 1G or more', cause);
  }
  if (code === 10039 || /not enabled/.test(String(cause)))
    return refused('jetstream', 'is not enabled for the account of this key', useOutput, cause);
  if (code === 10005 || /no suitable peers|replicas/i.test(String(cause)))
    return refused('broker.replicas', `nats-server has too few servers for '${name}'`, 'lower broker.replicas', cause);
  const { config } = (await jsm.streams.info(name).catch(() => undefined)) ?? {};
  for (const [key, value] of Object.entries(settings)) {
    const [found, wanted] = [JSON.stringify(config?.[key as keyof StreamConfig]), JSON.stringify(value)];
    if (!config || found === wanted) continue;
    const hint = `remove the stream if nothing else uses it (nats stream rm ${name}); Hostler makes it again`;
    const message = `NATS stream '${name}' has ${key} ${found} instead of ${wanted}`;
    return notExecuted('invalid_spec', message, hint, { field: key, cause });
  }
  return cause;
}
