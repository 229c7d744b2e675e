/**
 * Every engine that carries messages between workers and a host, as the suite beside this file uses it. Another engine is one
 * more row of `engines`.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { type Broker, openBroker } from '../../../src/broker/embedded/broker.js';
import { type Credential, digestOf } from '../../../src/broker/embedded/credentials.js';
import { localHostLink, openHostLink } from '../../../src/broker/embedded/host-link.js';
import type { BrokerLimits } from '../../../src/broker/embedded/limits.js';
import { openWorkerLink } from '../../../src/broker/embedded/worker-link.js';
import type { OpenHostLink, OpenWorkerLink } from '../../../src/broker/ports.js';
import { type BrokerStore, openBrokerStore } from '../../../src/broker/store/broker-store.js';
import { systemClock } from '../../../src/kernel/clock.js';

/** Names of workers, each its own mailbox, and the role its credential gives it. */
export const workers = { alice: 'researcher', bob: 'operator', carol: undefined } as const;
export type WorkerName = keyof typeof workers;

export interface BenchOptions {
  /** How many messages the host's mailbox holds; the engine's own default when undefined. */
  readonly mailboxMessages?: number;
}

/** An engine that is up. */
export interface Bench {
  readonly openHost: OpenHostLink;
  openWorker(name: WorkerName): OpenWorkerLink;
  /** With a key that nobody has. */
  readonly openStranger: OpenWorkerLink;
  /** Whether the role of a sender comes with its message; elsewhere the host gives it. */
  readonly stampsRoles: boolean;
  /** Messages that wait for the host or are owed by it. */
  depth(): Promise<number>;
  /** Messages that were given up after too many deliveries. */
  deadLetters(): Promise<readonly { readonly id: string }[]>;
  /** Ends without warning and comes back over the same disk; links are lost. */
  restart(): Promise<void>;
  close(): Promise<void>;
}

export interface Engine {
  readonly name: string;
  /** Given up after so many. */
  readonly deliveriesMax: number;
  open(options?: BenchOptions): Promise<Bench>;
}

const keyOf = (name: string) => `${name}-key-${'x'.repeat(32)}`;

export const embeddedCredentials: readonly Credential[] = [
  ...Object.entries(workers).map(
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

async function openEmbedded(isLocal: boolean, { mailboxMessages }: BenchOptions): Promise<Bench> {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-broker-'));
  const limits: Partial<BrokerLimits> = mailboxMessages === undefined ? {} : { mailboxMessages };
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
    openWorker: (name) => (handlers, signal) => openWorkerLink(settings(name))(handlers, signal),
    openStranger: (handlers, signal) => openWorkerLink(settings('nobody'))(handlers, signal),
    stampsRoles: true,
    depth: async () => broker.status().mailboxes.find(({ mailbox }) => mailbox === 'host')?.count ?? 0,
    deadLetters: () => broker.deadLetters(),
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

export const engines: readonly Engine[] = [
  { name: 'embedded', deliveriesMax: 5, open: (options = {}) => openEmbedded(false, options) },
  { name: 'embedded, host in its process', deliveriesMax: 5, open: (options = {}) => openEmbedded(true, options) },
];
