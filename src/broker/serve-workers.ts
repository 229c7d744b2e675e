/**
 * A Host → workers on other machines: joins an engine, its store and the service into one thing that can be closed. The composition
 * root of this folder.
 * Three shapes, by where the broker is: in this process, listening for workers; in another, reached over a WebSocket; or NATS.
 * Not here: what each part does; the configuration (config/broker-settings.ts, config/keys.ts) in the words of the engines
 * (engine-settings.ts, broker-keys.ts).
 *
 * Invariants: what was begun is ended in the reverse order, also when a later step fails; the store closes last.
 */
import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import type { BrokerSettings } from '../config/broker-settings.js';
import type { Keys } from '../config/keys.js';
import { type Clock, systemClock } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import { credentialsOf, natsCredentialsOf } from './broker-keys.js';
import { carefulLetters } from './careful-letters.js';
import type { DeadLetters } from './dead-letters.js';
import type { BrokerEvent, BrokerStatus } from './embedded/events.js';
import { limitsOf, listenOf, storeFolder, withFilesBelow } from './engine-settings.js';
import { readKeyFile } from './key-file.js';
import type { CallJournal, OpenHostLink } from './ports.js';
import { BrokerService } from './service/broker-service.js';
import type { ServedHost } from './service/served-host.js';
import type { ServiceEvent, ServiceStatus } from './service/service-events.js';
import { supervise } from './service/service-supervisor.js';

export interface ServeWorkersOptions {
  readonly host: ServedHost;
  readonly settings: BrokerSettings;
  readonly keys: Keys;
  /** Where messages and calls are kept. */
  readonly dataDir: string;
  /** Which files that the settings name are below; the working folder when absent. */
  readonly folder?: string;
  /** Who has no role, or none that is listed, may do what the host lets it. Asked for with every call. */
  readonly isRolelessAllowed?: () => boolean;
  readonly clock?: Clock;
  readonly onEvent?: (event: BrokerEvent | ServiceEvent) => void;
}

export interface ServedWorkers {
  /** Where workers connect; undefined when the broker is elsewhere. */
  readonly url: string | undefined;
  /** From now on these; whoever holds another is cut off. */
  rekey(keys: Keys): Promise<void>;
  /**
   * The same, to be done later together with other changes: throws now if the keys cannot be used. Once the function it returns has
   * been called, the new keys count; its promise is for what is left to do at the broker.
   */
  prepareKeys(keys: Keys): () => Promise<void>;
  status(): { readonly service: ServiceStatus; readonly broker: BrokerStatus | undefined };
  readonly deadLetters: DeadLetters | undefined;
  /** Calls that run have so long to end; 0 when absent. */
  close(graceMs?: number): Promise<void>;
}

interface Engine {
  /** Whoever else may be handed the same requests has the same journal. */
  readonly isJournalShared: boolean;
  /** The journal is in the store of the messages. */
  readonly isOneStore?: boolean;
  readonly url: string | undefined;
  readonly open: OpenHostLink;
  readonly journal: CallJournal;
  /** As `ServedWorkers.prepareKeys`. */
  prepareKeys(keys: Keys): () => Promise<void> | void;
  status(): BrokerStatus | undefined;
  readonly deadLetters: DeadLetters | undefined;
  close(): Promise<void>;
}

type EngineOptions = Required<Pick<ServeWorkersOptions, 'settings' | 'keys' | 'dataDir' | 'clock' | 'onEvent'>>;

export type ServeWorkers = typeof serveWorkers;

export async function serveWorkers(options: ServeWorkersOptions): Promise<ServedWorkers> {
  const { host, clock = systemClock, onEvent = () => {}, isRolelessAllowed, folder = '.' } = options;
  const settings = withFilesBelow(folder, options.settings);
  const engine = await openEngine({ ...options, settings, clock, onEvent });
  const { calls, callsPerWorker } = settings.limits;
  const service = new BrokerService({
    ...{ host, clock, onEvent, journal: engine.journal, compat: settings.compat },
    isJournalShared: engine.isJournalShared,
    isOneStore: engine.isOneStore ?? false,
    ...(isRolelessAllowed ? { isRolelessAllowed } : {}),
    limits: { running: calls, runningOfOne: callsPerWorker },
  });
  host.learnTools?.();
  const supervision = supervise({ open: engine.open, service, clock });
  return {
    url: engine.url,
    rekey: async (keys) => engine.prepareKeys(keys)(),
    prepareKeys(keys) {
      const rekey = engine.prepareKeys(keys);
      return async () => rekey();
    },
    status: () => ({ service: service.status(), broker: engine.status() }),
    deadLetters: engine.deadLetters,
    async close(graceMs = 0) {
      try {
        // While the link is there: who waits for a reply hears it now, and not from the next host.
        await service.stop(graceMs);
        await supervision.stop();
        service.close();
      } finally {
        await engine.close();
      }
    },
  };
}

function openEngine(options: EngineOptions): Promise<Engine> {
  const { url } = options.settings;
  if (url === undefined) return openEmbedded(options);
  return url.startsWith('ws') ? openRemote(url, options) : openNats(url, options);
}

async function openEmbedded({ settings, keys, dataDir, clock, onEvent }: EngineOptions): Promise<Engine> {
  const [{ openBroker }, { localHostLink }] = await Promise.all([
    import('./embedded/broker.js'),
    import('./embedded/host-link.js'),
  ]);
  const store = await openStore({ dataDir, clock, onEvent });
  try {
    const broker = await openBroker({
      ...{ store: store.mail, clock, onEvent },
      credentials: ofWorkers(keys),
      limits: limitsOf(settings),
      listen: listenOf(settings),
    });
    return {
      isJournalShared: true,
      isOneStore: true,
      url: broker.url,
      open: localHostLink(broker.core),
      journal: store.journal,
      prepareKeys(now) {
        const credentials = ofWorkers(now);
        return () => broker.rekey(credentials);
      },
      status: () => broker.status(),
      deadLetters: carefulLetters({
        ...{ letters: broker.deadLetters, journal: store.journal, clock },
        calls: () => broker.core.deadCalls(),
      }),
      async close() {
        try {
          await broker.close();
        } finally {
          await store.close();
        }
      },
    };
  } catch (error) {
    await store.close();
    throw error;
  }
}

/** The host is in this process, and so is its journal: another one would not know what ran. */
const ofWorkers = (keys: Keys) => credentialsOf(keys).filter(({ kind }) => kind === 'worker');

/** The journal is this host's own, wherever the messages are. */
async function openRemote(url: string, { settings, dataDir, clock, onEvent }: EngineOptions): Promise<Engine> {
  const key = keyOf(settings);
  const { openHostLink } = await import('./embedded/host-link.js');
  const store = await openStore({ dataDir, clock, onEvent });
  return {
    ...{
      isJournalShared: false,
      url: undefined,
      deadLetters: undefined,
      journal: store.journal,
      prepareKeys: () => () => {},
      status: () => undefined,
    },
    open: openHostLink({ url, key, clock, insecure: settings.insecure }),
    close: () => store.close(),
  };
}

async function openNats(url: string, { settings, keys, clock, onEvent }: EngineOptions): Promise<Engine> {
  const { natsHost, checkCredentials } = await import('./nats/nats-host.js');
  const { durability, replicas, keyFile, insecure, monitor, limits } = settings;
  const host = natsHost({
    ...{ url, clock, durability, replicas, insecure },
    ...(monitor === undefined ? {} : { monitorUrl: monitor }),
    key: keyFile === undefined ? undefined : keyOf(settings),
    instance: instanceName(),
    credentials: natsCredentialsOf(keys),
    served: limits,
    onProblem: (error) => onEvent({ kind: 'problem', error }),
  });
  return {
    ...{ isJournalShared: true, url: undefined, open: host.open, journal: host.journal, status: () => undefined },
    prepareKeys(now) {
      const credentials = checkCredentials(natsCredentialsOf(now));
      return () => host.replaceCredentials(credentials);
    },
    deadLetters: carefulLetters({
      letters: {
        list: () => host.deadLetters(),
        revive: (seq, options) => host.reviveDead(seq, options),
        drop: (seq) => host.dropDead(seq),
      },
      ...{ calls: () => host.deadLetters(), journal: host.journal, clock },
    }),
    close: () => host.close(),
  };
}

async function openStore({ dataDir, clock, onEvent }: Pick<EngineOptions, 'dataDir' | 'clock' | 'onEvent'>) {
  const { openBrokerStore } = await import('./store/broker-store.js');
  const onProblem = (error: HostError) => onEvent({ kind: 'problem', error });
  return openBrokerStore({ folder: storeFolder(dataDir), clock, onProblem });
}

/** For operators, and in claims: two machines may have one pid, and two of one image one name. */
export function instanceName(machine = hostname()): string {
  const name = machine
    .toLowerCase()
    .replace(/[^a-z0-9_-]+/g, '-')
    .slice(0, 64);
  return `host-${name}-${process.pid}-${randomBytes(4).toString('hex')}`;
}

function keyOf({ keyFile }: BrokerSettings): string {
  if (keyFile !== undefined) return readKeyFile(keyFile, 'broker.keyFile');
  throw new HostError('invalid_spec', 'broker.keyFile: is missing', {
    field: 'broker.keyFile',
    reason: 'key_file',
    execution: 'not_executed',
    hint: 'make one with hostler key add NAME --host, and name its file',
  });
}
