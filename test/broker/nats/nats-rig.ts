/** Hosts and workers on a real nats-server with the generated configuration. */

import type { BrokerEvent } from '../../../src/broker/broker-events.js';
import { Identities } from '../../../src/broker/identities.js';
import { newUserPair } from '../../../src/broker/nats/nats-client.js';
import { type NatsHostOptions, openNatsHost } from '../../../src/broker/nats/nats-host.js';
import { natsServerConfig } from '../../../src/broker/nats/server-config.js';
import { openNatsConnection } from '../../../src/broker/nats/worker-connection.js';
import type { CallRequest } from '../../../src/broker/protocol/messages.js';
import { BrokerService } from '../../../src/broker/service/broker-service.js';
import type { Engine, WorkerTransport } from '../../../src/broker/service/transport.js';
import type { OpenConnection } from '../../../src/broker/worker/connection.js';
import type { KeyEntry } from '../../../src/config/keys.js';
import { Cancellation } from '../../../src/kernel/cancel-signal.js';
import { systemClock } from '../../../src/kernel/clock.js';
import { FakeUpstreams } from '../../fakes/fake-upstreams.js';
import { type NatsServerFake, startNatsServer } from '../../fakes/nats-server.js';
import { RequestConnection } from '../../fakes/request-connection.js';

export const never = new Cancellation();
export const epochOf = (worker: string): string => `e_${worker}`;

export type Pair = Awaited<ReturnType<typeof newUserPair>>;

export interface RigHost {
  readonly nats: Engine;
  readonly upstreams: FakeUpstreams;
  readonly service: BrokerService;
  readonly transport: WorkerTransport;
  readonly identities: Identities;
  readonly events: BrokerEvent[];
  /** The arguments, as text, of the calls that ran at this host. */
  readonly ran: () => string[];
  close(): Promise<void>;
}

export interface RigConnection {
  readonly connection: RequestConnection;
  readonly session: string;
  readonly replies: Map<string, string>;
  readonly progress: string[];
  readonly revisions: string[];
}

export const keysOf = (workers: readonly { name: string; nkey?: string; epoch?: string; role?: string }[]) =>
  new Map<string, KeyEntry>(
    workers.map(({ name, nkey, epoch = epochOf(name), role = 'operator' }) => [
      name,
      { digest: undefined, nkey, role, expiresAtMs: undefined, worker: { name, epoch }, isHost: false },
    ]),
  );

/** A server, and everything that was opened on it. */
export class NatsStage {
  readonly hosts: RigHost[] = [];
  readonly connections: RequestConnection[] = [];
  readonly pairs = new Map<string, Pair>();
  readonly hostPair: Pair;
  readonly server: NatsServerFake;

  private constructor(server: NatsServerFake, hostPair: Pair, pairs: ReadonlyMap<string, Pair>) {
    this.server = server;
    this.hostPair = hostPair;
    for (const [name, pair] of pairs) this.pairs.set(name, pair);
  }

  static async start(workers: readonly string[] = ['w1', 'w2']): Promise<NatsStage> {
    const hostPair = await newUserPair();
    const pairs = new Map<string, Pair>();
    for (const worker of workers) pairs.set(worker, await newUserPair());
    const server = await startNatsServer({
      config: ({ port, storeDir }) => configOf(port, storeDir, hostPair, pairs),
    });
    return new NatsStage(server, hostPair, pairs);
  }

  /** As `hostler key nats --reload` does. */
  reload(pairs: ReadonlyMap<string, Pair>, epochs?: (worker: string) => string): Promise<void> {
    return this.server.reload(configOf(this.server.port, this.server.storeDir, this.hostPair, pairs, epochs));
  }

  async host(options: Partial<NatsHostOptions> & { runningPerWorker?: number } = {}): Promise<RigHost> {
    const { runningPerWorker = 64, ...rest } = options;
    const events: BrokerEvent[] = [];
    const onEvent = (event: BrokerEvent) => void events.push(event);
    const workers = [...this.pairs].map(([name, { publicKey }]) => ({ name, nkey: publicKey }));
    const identities = rest.identities ?? new Identities(keysOf(workers), systemClock);
    const nats = await openNatsHost({
      ...{ url: this.server.url, key: this.hostPair.seed, durability: 'process', replicas: 1, monitor: undefined },
      ...{ clock: systemClock, onEvent, ...rest, identities },
    });
    const upstreams = new FakeUpstreams({ srv: { tools: ['run', 'again'] } });
    upstreams.repeatable.add('srv/again');
    upstreams.onCall = ({ args }) => `{"content":[],"ran":${args}}`;
    const service = new BrokerService({
      ...{ host: upstreams, log: nats.log, clock: systemClock, onEvent, runningPerWorker },
      isRolelessAllowed: () => true,
    });
    const transport = await nats.open(service);
    service.attach(transport);
    let closing: Promise<void> | undefined;
    const rig: RigHost = {
      ...{ nats, upstreams, service, transport, identities, events },
      ran: () => upstreams.calls.map(({ args }) => args),
      close: () => {
        closing ??= (async () => {
          await transport.stop();
          await service.stop(0);
          service.close();
          await transport.close();
          await nats.close();
        })();
        return closing;
      },
    };
    this.hosts.push(rig);
    return rig;
  }

  opener(worker: string, url = this.server.url): OpenConnection {
    return openNatsConnection({ url, key: this.pairs.get(worker)?.seed, clock: systemClock });
  }

  async connect(worker: string, session = `s_${worker}`, open = this.opener(worker)): Promise<RigConnection> {
    const replies = new Map<string, string>();
    const [progress, revisions]: [string[], string[]] = [[], []];
    const connection = await RequestConnection.open(open, {
      ...{ session, signal: never },
      handlers: {
        reply: (key, body) => void replies.set(key, body.toString()),
        progress: (_key, params) => void progress.push(params.toString()),
        manifestChanged: (revision) => void revisions.push(revision),
      },
    });
    this.connections.push(connection);
    return { connection, session, replies, progress, revisions };
  }

  async stop(): Promise<void> {
    await Promise.all(this.connections.splice(0).map((each) => each.close()));
    await Promise.all(this.hosts.splice(0).map((each) => each.close()));
    await this.server.stop();
  }
}

export const configOf = (
  port: number,
  storeDir: string,
  host: Pair,
  pairs: ReadonlyMap<string, Pair>,
  epochs: (worker: string) => string = epochOf,
): string =>
  natsServerConfig({
    ...{ listen: `127.0.0.1:${port}`, storeDir, hosts: [host.publicKey] },
    workers: [...pairs].map(([worker, { publicKey }]) => ({ worker, epoch: epochs(worker), publicKey })),
  });

export const request = (key: string, more: Partial<CallRequest> = {}): CallRequest => ({
  ...{ key, deadlineMs: 60_000, server: 'srv', tool: 'run', args: Buffer.from(JSON.stringify({ key })) },
  ...{
    sentBefore: undefined,
    isCallersKey: false,
    wantsProgress: false,
    manifestRevision: undefined,
    trace: undefined,
  },
  ...more,
});

export const keys = (count: number, prefix = 'k'): string[] =>
  Array.from({ length: count }, (_, at) => `${prefix}${at}`);
