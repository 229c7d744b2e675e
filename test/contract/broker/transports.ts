/** The transports of the broker, each with its host side and its worker side, for one contract suite. */
import { Identities } from '../../../src/broker/identities.js';
import { HostTransport } from '../../../src/broker/nats/host-transport.js';
import { connectNats, newUserPair, TurnBatch } from '../../../src/broker/nats/nats-client.js';
import { natsServerConfig } from '../../../src/broker/nats/server-config.js';
import { openNatsConnection } from '../../../src/broker/nats/worker-connection.js';
import type { CallRequest } from '../../../src/broker/protocol/messages.js';
import type { ServiceHandlers, WorkerSession, WorkerTransport } from '../../../src/broker/service/transport.js';
import { openWebSocketTransport } from '../../../src/broker/websocket/websocket-transport.js';
import { openWebSocketConnection } from '../../../src/broker/websocket/worker-connection.js';
import type { OpenConnection } from '../../../src/broker/worker/connection.js';
import { digestOf, type KeyEntry, newKey } from '../../../src/config/keys.js';
import { Cancellation } from '../../../src/kernel/cancel-signal.js';
import { type Clock, systemClock } from '../../../src/kernel/clock.js';
import { HostError } from '../../../src/kernel/errors.js';
import { MemoryTransport } from '../../fakes/memory-transport.js';
import { startNatsServer } from '../../fakes/nats-server.js';
import { type MessageHandlers, RequestConnection } from '../../fakes/request-connection.js';
import { type IncomingCall, ScriptedHandlers } from '../../fakes/scripted-handlers.js';

/** A started host side of a transport, and connections of its workers. */
export interface TransportPlace {
  readonly transport: WorkerTransport;
  readonly storeId: string;
  /** Opens connections of worker `w1` or `w2`, or with an unknown key (`nobody`). */
  opener(worker: 'w1' | 'w2' | 'nobody'): OpenConnection;
  /** Revokes the keys of `w1`. */
  revoke(): Promise<void>;
  close(): Promise<void>;
}

export interface TransportKind {
  readonly name: string;
  /** False: a worker cannot tell a call that no host read from one whose receipt was lost. */
  readonly knowsUnread: boolean;
  open(handlers: ServiceHandlers): Promise<TransportPlace>;
}

export const roles: Readonly<Record<string, string>> = { w1: 'reader', w2: 'writer' };

/** An entry of `keys` in the configuration. */
export const workerEntry = (name: string, key: string, entry: Partial<KeyEntry> = {}): KeyEntry => ({
  ...{ digest: digestOf(key), nkey: undefined, role: roles[name], expiresAtMs: undefined, isHost: false },
  worker: { name, epoch: `${name}-epoch` },
  ...entry,
});

const webSocketKind: TransportKind = {
  ...{ name: 'WebSocket', knowsUnread: true },
  async open(handlers) {
    const keys = { w1: newKey(), w2: newKey(), nobody: newKey() };
    const entryOf = (name: 'w1' | 'w2') => [name, workerEntry(name, keys[name])] as const;
    const identities = new Identities(new Map([entryOf('w1'), entryOf('w2')]), systemClock);
    const storeId = 'store-1';
    const transport = await openWebSocketTransport({
      ...{ handlers, identities, storeId, clock: systemClock, listen: { port: 0 } },
      limits: { connections: 16, bytesPerSecond: 64 * 1024 * 1024 },
    });
    return {
      ...{ transport, storeId },
      opener: (worker) => openWebSocketConnection({ url: transport.url, key: keys[worker], clock: systemClock }),
      async revoke() {
        identities.replace(new Map([entryOf('w2')]));
      },
      close: () => transport.close(),
    };
  },
};

const natsKind: TransportKind = {
  ...{ name: 'NATS', knowsUnread: false },
  async open(handlers) {
    const names = ['host', 'w1', 'w2', 'nobody'] as const;
    const pairs = Object.fromEntries(
      await Promise.all(names.map(async (name) => [name, await newUserPair()])),
    ) as Record<(typeof names)[number], { seed: string; publicKey: string }>;
    const entryOf = (name: 'w1' | 'w2') =>
      [name, workerEntry(name, '', { digest: undefined, nkey: pairs[name].publicKey })] as const;
    const identities = new Identities(new Map([entryOf('w1'), entryOf('w2')]), systemClock);
    const server = await startNatsServer({
      config: ({ port, storeDir }) =>
        natsServerConfig({
          ...{ listen: `127.0.0.1:${port}`, storeDir, hosts: [pairs.host.publicKey] },
          workers: (['w1', 'w2'] as const).map((worker) => ({
            ...{ worker, epoch: `${worker}-epoch`, publicKey: pairs[worker].publicKey },
          })),
        }),
    });
    const connectHost = () => connectNats({ url: server.url, key: pairs.host.seed, name: 'host', reconnects: true });
    const [intake, connection] = [await connectHost(), await connectHost()];
    const store = { id: 'store-1', seenToken: '1.t', checking: undefined, sawToken: () => {} };
    const transport = new HostTransport({
      ...{ intake, connection, handlers, identities, store, clock: systemClock },
      ...{ onProblem: () => {}, onEvent: () => {}, batch: new TurnBatch() },
    });
    await Promise.all([intake.flush(), connection.flush()]);
    return {
      ...{ transport, storeId: 'store-1' },
      opener: (worker) => openNatsConnection({ url: server.url, key: pairs[worker].seed, clock: systemClock }),
      async revoke() {
        identities.replace(new Map([entryOf('w2')]));
      },
      async close() {
        await transport.close();
        await Promise.all([intake.close(), connection.close()]);
        await server.stop();
      },
    };
  },
};

/** The fake transport for tests of the worker. It must pass the same suite. */
const memoryKind: TransportKind = {
  ...{ name: 'memory', knowsUnread: true },
  async open(handlers) {
    const transport = new MemoryTransport(handlers);
    return {
      ...{ transport, storeId: transport.storeId },
      opener: (worker) =>
        worker === 'nobody'
          ? () => Promise.reject(new HostError('unauthenticated', 'refused', { execution: 'not_executed' }))
          : transport.opener({ name: worker, epoch: `${worker}-epoch`, role: roles[worker] }),
      async revoke() {
        transport.revoked.add('w1');
      },
      close: () => transport.close(),
    };
  },
};

export const transportKinds: readonly TransportKind[] = [memoryKind, webSocketKind, natsKind];

/** Records the calls of a transport, and gives the answers of the test. */
export class RecordingService extends ScriptedHandlers {
  readonly calls: IncomingCall[] = [];
  readonly cancels: { readonly session: WorkerSession; readonly key: string }[] = [];
  readonly ackedKeys: string[] = [];
  readonly asks: (readonly string[])[] = [];
  readonly joinedSessions: WorkerSession[] = [];
  onConnected: (session: WorkerSession) => void = () => {};
  onLeft: (session: WorkerSession, reason: string) => void = () => {};
  owner = 'owner-1';
  onCall: (incoming: IncomingCall) => void = (incoming) => incoming.receipt(this.owner);
  onAsk: ScriptedHandlers['ask'] = async (_session, keys) => ({ running: keys, resend: [] });
  manifestBody = Buffer.from('{"revision":"r1","tools":[]}');

  call(incoming: IncomingCall): void {
    this.calls.push(incoming);
    this.onCall(incoming);
  }
  cancel(session: WorkerSession, key: string): void {
    this.cancels.push({ session, key });
  }
  acknowledge(_session: WorkerSession, keys: readonly string[]): void {
    this.ackedKeys.push(...keys);
  }
  ask(session: WorkerSession, keys: readonly string[]) {
    this.asks.push(keys);
    return this.onAsk(session, keys);
  }
  async manifest(): Promise<Buffer> {
    return this.manifestBody;
  }
  override connected(session: WorkerSession): void {
    this.joinedSessions.push(session);
    this.onConnected(session);
  }
  override left(session: WorkerSession, reason: string): void {
    this.onLeft(session, reason);
  }
}

/** Records the messages that a connection passes to its worker. */
export class RecordingWorker implements MessageHandlers {
  readonly replies: { readonly key: string; readonly body: string }[] = [];
  readonly progressed: { readonly key: string; readonly params: string }[] = [];
  readonly revisions: string[] = [];
  readonly session: string;
  readonly signal = new Cancellation();

  constructor(
    session = `session-${Math.random().toString(36).slice(2)}`,
    private readonly clock: Clock = systemClock,
  ) {
    this.session = session;
  }
  reply(key: string, body: Buffer): void {
    this.replies.push({ key, body: body.toString() });
  }
  progress(key: string, params: Buffer): void {
    this.progressed.push({ key, params: params.toString() });
  }
  manifestChanged(revision: string): void {
    this.revisions.push(revision);
  }
  connect(open: OpenConnection) {
    const { session, signal, clock } = this;
    return RequestConnection.open(open, { session, handlers: this, signal, clock });
  }
}

export const request = (key: string, changes: Partial<CallRequest> = {}): CallRequest => ({
  ...{ key, deadlineMs: 60_000, server: 'nova', tool: 'nova_click', args: Buffer.from('{"mark":7}') },
  ...{
    sentBefore: undefined,
    isCallersKey: false,
    wantsProgress: false,
    manifestRevision: undefined,
    trace: undefined,
  },
  ...changes,
});
