/**
 * Serves workers on other machines with the tools of a host: joins a log of calls, a transport and the service. The composition root of
 * this folder. With `broker.url` the log and the transport use NATS; without it they are SQLite and WebSocket.
 * Not here: the parts themselves; parsing the configuration (config/broker-settings.ts, config/keys.ts).
 *
 * Invariants: every opened part is closed in reverse order, also when a later step fails. The log closes last.
 */
import path from 'node:path';
import type { BrokerSettings } from '../config/broker-settings.js';
import { callsFolder } from '../config/folders.js';
import { parseServing } from '../config/host-config.js';
import { type Keys, parseKeys } from '../config/keys.js';
import type { BrokerStatus } from '../host/broker-status.js';
import type { HostConfig } from '../host/host-interface.js';
import { type Clock, systemClock } from '../kernel/clock.js';
import { type HostError, notExecuted } from '../kernel/errors.js';
import { warnProcess, withoutThrowing } from '../kernel/problems.js';
import type { BrokerEvent } from './broker-events.js';
import type { CallLog } from './calls/call-log.js';
import { Identities } from './identities.js';
import { readKeyFile } from './key-file.js';
import { keyedCalls } from './keyed-calls.js';
import { BrokerService } from './service/broker-service.js';
import type { Engine, ServedHost } from './service/transport.js';

type KeyTable = Readonly<Record<string, unknown>>;

export interface ServeWorkersOptions {
  readonly host: ServedHost;
  readonly settings: BrokerSettings;
  /** Unparsed entries by name. An invalid key grants no access. */
  readonly keys: KeyTable;
  /** Called for each invalid key. */
  readonly onKeyProblem?: (error: unknown) => void;
  /** The log of calls is in `broker/` below it. */
  readonly dataDir: string;
  /** Relative paths in the settings start here; the working folder by default. */
  readonly folder?: string;
  /** Whether a worker without a role, or with an unlisted one, may use what the host allows. Asked for each call. */
  readonly isRolelessAllowed?: () => boolean;
  readonly clock?: Clock;
  readonly onEvent?: (event: BrokerEvent) => void;
}

export interface ServedWorkers {
  /** Where workers connect; undefined with NATS. */
  readonly url: string | undefined;
  /** The log of calls of workers. */
  readonly log: CallLog;
  /** Replaces all keys, and reports invalid ones. Resolves when the calls of revoked workers are removed. */
  rekey(keys: KeyTable): Promise<void>;
  /** Like `rekey`, but reads the keys now and applies them with the returned function. Throws if they cannot be read. */
  prepareKeys(keys: KeyTable): () => Promise<void>;
  status(): BrokerStatus;
  /** Running calls have `graceMs` to end; 0 by default. */
  close(graceMs?: number): Promise<void>;
}

type EngineOptions = Required<Pick<ServeWorkersOptions, 'settings' | 'dataDir' | 'clock' | 'onEvent'>> & {
  readonly identities: Identities;
};

export interface BrokerOptions extends Pick<ServeWorkersOptions, 'host' | 'dataDir' | 'folder' | 'clock' | 'onEvent'> {
  /** As in `hostler.json`; only `broker`, `keys` and `unlistedRole` are used. */
  readonly config: HostConfig;
  /** Called for each invalid key. An invalid key grants no access. */
  readonly onProblem?: (error: unknown) => void;
}

/**
 * For programs: serves workers as `hostler up` does, from a configuration of the same shape. Rejects with a HostError if it has no broker,
 * or one that cannot be opened.
 */
export async function createBroker({
  config,
  onProblem: onKeyProblem = warnProcess,
  ...options
}: BrokerOptions): Promise<ServedWorkers> {
  const { broker: settings, keys, unlistedRole } = parseServing(config);
  const hint = 'an empty object is enough: {"broker": {}}';
  if (!settings) throw notExecuted('invalid_spec', 'broker: is missing', hint, { field: 'broker' });
  return serveWorkers({ ...options, settings, keys, onKeyProblem, isRolelessAllowed: () => unlistedRole === 'allow' });
}

export type ServeWorkers = typeof serveWorkers;

export async function serveWorkers(options: ServeWorkersOptions): Promise<ServedWorkers> {
  const { host, dataDir, clock = systemClock, folder = '.', onKeyProblem = () => {} } = options;
  let revokedConnections = 0;
  // An error of the listener must not affect the workers.
  const tell = withoutThrowing(options.onEvent ?? (() => {}));
  const onEvent = (event: BrokerEvent): void => {
    if (event.kind === 'disconnected' && event.reason === 'revoked') revokedConnections++;
    tell(event);
  };
  const settings = withFilesBelow(folder, options.settings);
  const identities = new Identities(parseKeys(options.keys, onKeyProblem), clock);
  const openEngine = settings.url === undefined ? openEmbedded : openNats;
  const engine = await openEngine({ settings, dataDir, identities, clock, onEvent }).catch((error) => {
    identities.close();
    throw error;
  });
  const { log } = engine;
  const service = new BrokerService({
    ...{ host, log, clock, onEvent },
    isRolelessAllowed: options.isRolelessAllowed ?? (() => false),
    runningPerWorker: settings.limits.callsPerWorker,
  });
  let transport: Awaited<ReturnType<Engine['open']>>;
  try {
    transport = await engine.open(service);
  } catch (error) {
    service.close();
    identities.close();
    await engine.close();
    throw error;
  }
  service.attach(transport);
  host.learnTools?.();
  const onProblem = (error: unknown) => onEvent({ kind: 'problem', error });
  const keyed = engine.isLogShared ? keyedCalls(log, clock, false, onProblem) : undefined;
  if (keyed) host.useKeyedCalls?.(keyed, 'shared');
  const apply = async (edited: Keys): Promise<void> => {
    const closedBefore = revokedConnections;
    const { revoked, otherRole } = identities.replace(edited);
    onEvent({ kind: 'rekeyed', closed: revokedConnections - closedBefore });
    if (otherRole.size > 0) service.rolesChanged(otherRole);
    // All workers are tried, also if one of them fails.
    const purged = await Promise.allSettled(
      revoked.map(({ name, keptEpoch }) => service.workerRevoked(name, keptEpoch === undefined ? [] : [keptEpoch])),
    );
    const failed = purged.find(({ status }) => status === 'rejected');
    if (failed?.status === 'rejected') throw failed.reason;
  };
  const prepareKeys = (edited: KeyTable) => {
    const keys = parseKeys(edited, onKeyProblem);
    return () => apply(keys);
  };
  return {
    ...{ url: transport.url, log, prepareKeys },
    rekey: async (edited) => prepareKeys(edited)(),
    status: () => ({
      ...{ engine: engine.name, isConnected: engine.isConnected(), connectedWorkers: transport.connectedWorkers },
      ...log.usage(),
      ...service.status(),
    }),
    async close(graceMs = 0) {
      try {
        // New calls are refused first, while replies of running calls still reach their workers.
        await transport.stop();
        await Promise.all([service.stop(graceMs), keyed?.close(graceMs)]);
        service.close();
        await transport.close();
      } finally {
        identities.close();
        await engine.close();
      }
    },
  };
}

async function openEmbedded({ settings, dataDir, identities, clock, onEvent }: EngineOptions): Promise<Engine> {
  const [{ openSqliteCallLog }, { openWebSocketTransport }] = await Promise.all([
    import('./calls/sqlite/sqlite-call-log.js'),
    import('./websocket/websocket-transport.js'),
  ]);
  const onProblem = (error: HostError) => onEvent({ kind: 'problem', error });
  const log = await openSqliteCallLog({
    folder: callsFolder(dataDir),
    clock,
    onProblem,
    workers: identities.kept(),
  });
  const { connections, bytesPerSecond } = settings.limits;
  return {
    name: 'embedded',
    log,
    isLogShared: false,
    isConnected: () => true,
    open: (handlers) =>
      openWebSocketTransport({
        ...{ handlers, identities, clock, onEvent, storeId: log.storeId, listen: settings.listen },
        limits: { connections, bytesPerSecond },
      }),
    close: () => log.close(),
  };
}

async function openNats({ settings, identities, clock, onEvent }: EngineOptions): Promise<Engine> {
  const { openNatsHost } = await import('./nats/nats-host.js');
  const { url = '', keyFile, insecure, durability, replicas, unsafeReplicas, monitor } = settings;
  return openNatsHost({
    ...{ url, insecure, durability, replicas, unsafeReplicas, monitor, identities, clock, onEvent },
    key: keyFile === undefined ? undefined : readKeyFile(keyFile, 'broker.keyFile'),
  });
}

/** Makes the paths independent of the folder in which Hostler was started. */
function withFilesBelow(folder: string, settings: BrokerSettings): BrokerSettings {
  const { keyFile, listen } = settings;
  const below = (file: string) => path.resolve(folder, file);
  const tls = listen.tls && { cert: below(listen.tls.cert), key: below(listen.tls.key) };
  return { ...settings, keyFile: keyFile && below(keyFile), listen: { ...listen, tls } };
}
