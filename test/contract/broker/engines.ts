/**
 * Every engine that carries messages between workers and a host, as the suite beside this file uses it. Another engine is one
 * more row of `engines`.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { type Broker, openBroker } from '../../../src/broker/embedded/broker.js';
import type { Credential } from '../../../src/broker/embedded/credentials.js';
import { localHostLink, openHostLink } from '../../../src/broker/embedded/host-link.js';
import type { BrokerLimits } from '../../../src/broker/embedded/limits.js';
import { openWorkerLink } from '../../../src/broker/embedded/worker-link.js';
import { natsHost } from '../../../src/broker/nats/nats-host.js';
import { natsServerConfig } from '../../../src/broker/nats/nats-server-config.js';
import { openNatsWorkerLink } from '../../../src/broker/nats/nats-worker-link.js';
import { newUserPair } from '../../../src/broker/nats/user-pair.js';
import type { CallJournal, OpenHostLink, OpenWorkerLink } from '../../../src/broker/ports.js';
import { type BrokerStore, openBrokerStore } from '../../../src/broker/store/broker-store.js';
import { digestOf } from '../../../src/config/keys.js';
import { systemClock } from '../../../src/kernel/clock.js';
import { startNatsServer } from '../../fakes/nats-server.js';

/** Names of workers, each its own mailbox, and the role its credential gives it. */
export const workers = { alice: 'researcher', bob: 'operator', carol: undefined } as const;
export type WorkerName = keyof typeof workers;

export interface BenchOptions {
  /** How many messages the host's mailbox holds; the engine's own default when undefined. */
  readonly mailboxMessages?: number;
  /** How many requests of one worker a host has in its hands; the engine's own default when undefined. */
  readonly windowOfOne?: number;
}

/** By worker; who is not in it has no key any more. */
export type Roles = Readonly<Partial<Record<WorkerName, string | undefined>>>;

/** An engine that is up. */
export interface Bench {
  readonly openHost: OpenHostLink;
  /** Of the host. */
  readonly journal: CallJournal;
  openWorker(name: WorkerName): OpenWorkerLink;
  /** With a key that nobody has. */
  readonly openStranger: OpenWorkerLink;
  /** Whether the role of a sender comes with its message; elsewhere the host gives it. */
  readonly stampsRoles: boolean;
  /** Messages that wait for the host or are owed by it. */
  depth(): Promise<number>;
  /** Messages that were given up after too many deliveries. */
  deadLetters(): Promise<readonly { readonly id: string }[]>;
  /** From now on these roles. */
  rekey(roles: Roles): Promise<void>;
  /** Ends without warning and comes back over the same disk; links are lost. */
  restart(): Promise<void>;
  close(): Promise<void>;
}

export interface Engine {
  readonly name: string;
  /** Given up after so many. */
  readonly deliveriesMax: number;
  /**
   * What was acknowledged, and how often something was handed out, is known after a kill. NATS writes that down some time
   * after the message itself, so there an acknowledged request may come again; the journal answers it.
   */
  readonly acksOutliveKill: boolean;
  open(options?: BenchOptions): Promise<Bench>;
}

const keyOf = (name: string) => `${name}-key-${'x'.repeat(32)}`;

const credentialsOf = (roles: Roles): readonly Credential[] => [
  ...Object.entries(roles).map(
    ([name, role]): Credential => ({
      ...{ name, digest: digestOf(keyOf(name)), mailbox: name, role, kind: 'worker' },
      ...{ sendsTo: ['host'], expiresAtMs: undefined },
    }),
  ),
  {
    ...{ name: 'host', digest: digestOf(keyOf('host')), mailbox: 'host', role: undefined, kind: 'host' },
    ...{ sendsTo: [], expiresAtMs: undefined },
  },
];
const embeddedCredentials = credentialsOf(workers);

async function openEmbedded(isLocal: boolean, { mailboxMessages, windowOfOne }: BenchOptions): Promise<Bench> {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-broker-'));
  const limits: Partial<BrokerLimits> = {
    ...(mailboxMessages === undefined ? {} : { mailboxMessages }),
    ...(windowOfOne === undefined ? {} : { hostWindowOfOne: windowOfOne }),
  };
  let store: BrokerStore;
  let broker: Broker;
  const start = async (port: number) => {
    store = await openBrokerStore({ folder, clock: systemClock });
    broker = await openBroker({
      ...{ store: store.mail, clock: systemClock, credentials: embeddedCredentials, limits },
      listen: { port },
    });
  };
  const stop = async () => {
    await broker.close();
    await store.close();
  };
  await start(0);
  const url = () => broker.url as string;
  const settings = (name: string) => ({ url: url(), key: keyOf(name), clock: systemClock });
  return {
    openHost: (handlers, signal) =>
      (isLocal ? localHostLink(broker.core) : openHostLink(settings('host')))(handlers, signal),
    get journal() {
      return store.journal;
    },
    openWorker: (name) => (handlers, signal) => openWorkerLink(settings(name))(handlers, signal),
    openStranger: (handlers, signal) => openWorkerLink(settings('nobody'))(handlers, signal),
    stampsRoles: true,
    depth: async () => broker.status().mailboxes.find(({ mailbox }) => mailbox === 'host')?.count ?? 0,
    deadLetters: () => broker.deadLetters.list(),
    rekey: async (roles) => broker.rekey(credentialsOf(roles)),
    async restart() {
      const { port } = new URL(url());
      await stop();
      await start(Number(port));
    },
    async close() {
      await stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

const natsRoles = (roles: Roles) => new Map(Object.entries(roles).map(([name, role]) => [name, { role }]));

/** A nats-server of its own, killed where an engine ends without warning. */
async function openNats({ mailboxMessages, windowOfOne }: BenchOptions): Promise<Bench> {
  const names = Object.keys(workers) as WorkerName[];
  const hostKey = await newUserPair();
  const strangerKey = await newUserPair();
  const keys = new Map(await Promise.all(names.map(async (name) => [name, await newUserPair()] as const)));
  const server = await startNatsServer({
    config: ({ port, storeDir }) =>
      natsServerConfig({
        ...{ listen: `127.0.0.1:${port}`, storeDir, hosts: [hostKey.publicKey] },
        workers: [...keys].map(([mailbox, { publicKey }]) => ({ mailbox, publicKey })),
      }),
  });
  const host = natsHost({
    ...{ url: server.url, key: hostKey.seed, clock: systemClock, instance: 'one', durability: 'process' },
    credentials: natsRoles(workers),
    // Short, so that what a killed server owes comes again while a test waits.
    ackWaitMs: 2_000,
    ...(mailboxMessages === undefined ? {} : { requestsMax: mailboxMessages }),
    ...(windowOfOne === undefined ? {} : { laneWindow: windowOfOne }),
  });
  // Workers send into what a host made: one was there once.
  await (await host.open({ deliver() {}, cancelled() {} }, new AbortController().signal)).close();
  const openAs =
    (mailbox: string, key: string | undefined): OpenWorkerLink =>
    (handlers, signal) =>
      openNatsWorkerLink({ url: server.url, key, mailbox, clock: systemClock })(handlers, signal);
  return {
    openHost: host.open,
    journal: host.journal,
    openWorker: (name) => openAs(name, keys.get(name)?.seed),
    openStranger: openAs('alice', strangerKey.seed),
    stampsRoles: true,
    depth: async () => (await host.depths()).reduce((sum, { count }) => sum + count, 0),
    deadLetters: () => host.deadLetters(),
    rekey: (roles) => host.replaceCredentials(natsRoles(roles)),
    async restart() {
      await server.kill();
      await server.start();
    },
    async close() {
      await host.close();
      await server.stop();
    },
  };
}

export const engines: readonly Engine[] = [
  { name: 'embedded', deliveriesMax: 5, acksOutliveKill: true, open: (options = {}) => openEmbedded(false, options) },
  {
    ...{ name: 'embedded, host in its process', deliveriesMax: 5, acksOutliveKill: true },
    open: (options = {}) => openEmbedded(true, options),
  },
  { name: 'NATS', deliveriesMax: 5, acksOutliveKill: false, open: (options = {}) => openNats(options) },
];
