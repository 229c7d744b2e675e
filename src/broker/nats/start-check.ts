/**
 * What a host requires of a NATS server before it uses it.
 * Invariant: a server counts as durable only if its own monitoring port says that every write is synced, or the configuration accepts less.
 */
import { HostError } from '../../kernel/errors.js';
import { type NatsConnection, notExecuted } from './nats-client.js';
import { payloadBytes } from './server-config.js';

export interface StartCheckOptions {
  readonly durability: 'power' | 'process';
  readonly replicas: number;
  /** Monitoring port of the server. */
  readonly monitor: string | undefined;
  /** Allows `replicas` on a server that may accept two creations of one row. */
  readonly unsafeReplicas?: boolean | undefined;
}

const answerMs = 5_000;

export async function checkServer({ info }: NatsConnection, options: StartCheckOptions): Promise<void> {
  const { durability, replicas, monitor, unsafeReplicas } = options;
  if (!info) throw refused('url', 'the NATS server sent no INFO', 'check the address');
  const { version, max_payload: limit, jetstream, server_id: serverId } = info;
  if (jetstream !== true)
    throw refused(
      'jetstream',
      'is not enabled in nats-server',
      'use the output of hostler key nats as its configuration',
    );
  if (limit < payloadBytes)
    throw refused(
      'max_payload',
      `of nats-server is ${limit} bytes`,
      `set max_payload: ${payloadBytes} in its configuration`,
    );
  if (replicas > 1 && isOlder(version, [2, 11]) && !unsafeReplicas)
    throw refused(
      'broker.replicas',
      `${replicas} needs nats-server 2.11; ${version} may let two hosts run one call after a leader change`,
      'upgrade nats-server, set broker.replicas to 1, or accept it with broker.unsafeReplicas',
    );
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
    throw new HostError('connect_failed', 'broker.monitor: the monitoring port of nats-server does not answer', {
      ...{ field: 'broker.monitor', ...notExecuted, hint: 'check http in its configuration', cause },
    });
  }
  if (varz.server_id !== serverId)
    throw refused(
      'broker.monitor',
      'belongs to another nats-server',
      'name the monitoring port of the server in broker.url',
    );
  return varz.jetstream?.config?.sync_always === true;
}

function isOlder(version: string, [major, minor]: readonly [number, number]): boolean {
  const [a = 0, b = 0] = version.split('.').map((part) => Number.parseInt(part, 10));
  return a < major || (a === major && b < minor);
}

const refused = (field: string, what: string, hint: string): HostError =>
  new HostError('invalid_spec', `${field}: ${what}`, { field, ...notExecuted, hint });
