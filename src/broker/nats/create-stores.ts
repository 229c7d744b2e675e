/**
 * The buckets and the stream that hosts use. All hosts make the same ones.
 * Invariant: a store with other settings is refused with the difference, never changed: it may belong to an operator.
 */
import type { DiscardPolicy, JetStreamManager, RetentionPolicy, StorageType, StreamConfig } from '@nats-io/jetstream';
import { HostError } from '../../kernel/errors.js';
import { bodiesStream, callsBucket, keysBucket, streamOf } from './names.js';
import { notExecuted } from './nats-client.js';

const MiB = 1024 * 1024;
const minuteNs = 60_000_000_000;

/** Rows of a host that ended are removed so late. */
const rowMinutes = 15;
/** Size of each bucket, and of the stream of bodies. */
export const storeBytes = 256 * MiB;

type Settings = Pick<StreamConfig, 'name' | 'subjects' | 'max_age' | 'max_msgs_per_subject'> & Partial<StreamConfig>;

const storeSettings = (replicas: number): readonly Settings[] => {
  const common = {
    storage: 'file' as StorageType,
    retention: 'limits' as RetentionPolicy,
    discard: 'new' as DiscardPolicy,
    max_bytes: storeBytes,
    num_replicas: replicas,
  };
  const bucket = (name: string, minutes: number): Settings => ({
    ...{ name: streamOf(name), subjects: [`$KV.${name}.>`], max_msgs_per_subject: 1, max_age: minutes * minuteNs },
    // Unlike other buckets: rows are removed by sequence, because a delete marker would take room until it expires.
    ...{ ...common, deny_delete: false, allow_rollup_hdrs: true },
  });
  return [
    // Deadlines are at most 10 minutes after the first write of a row, and rows stay at least a minute longer.
    bucket(callsBucket, rowMinutes),
    bucket(keysBucket, 25 * 60),
    {
      ...{ name: bodiesStream, subjects: ['hostler.body.>'], max_msgs_per_subject: -1, max_age: rowMinutes * minuteNs },
      ...{ ...common, deny_delete: false, allow_direct: true },
    },
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
  if (code === 10047 || code === 10023 || /insufficient|maximum/i.test(String(cause)))
    return refused(
      'max_file',
      `has no room for '${name}' (${storeBytes / MiB} MiB)`,
      'set max_file to 1G or more',
      cause,
    );
  if (code === 10039 || /not enabled/.test(String(cause)))
    return refused(
      'jetstream',
      'is not enabled for the account of this key',
      'use the output of hostler key nats',
      cause,
    );
  if (code === 10005 || /no suitable peers|replicas/i.test(String(cause)))
    return refused(
      'broker.replicas',
      `: nats-server has too few servers for '${name}'`,
      'lower broker.replicas',
      cause,
    );
  const { config } = (await jsm.streams.info(name).catch(() => undefined)) ?? {};
  const differs = Object.entries(settings).find(
    ([key, value]) => config && JSON.stringify(config[key as keyof StreamConfig]) !== JSON.stringify(value),
  );
  if (!config || !differs) return cause;
  const [key, value] = differs;
  const found = JSON.stringify(config[key as keyof StreamConfig]);
  return new HostError(
    'invalid_spec',
    `NATS stream '${name}' has ${key} ${found} instead of ${JSON.stringify(value)}`,
    {
      ...{ field: key, ...notExecuted, cause },
      hint: `remove the stream if nothing else uses it (nats stream rm ${name}); Hostler makes it again`,
    },
  );
}

const refused = (field: string, what: string, hint: string, cause: unknown): HostError =>
  new HostError('invalid_spec', `nats-server: ${field} ${what}`, { field, ...notExecuted, hint, cause });
