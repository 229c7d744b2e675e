/**
 * One host on NATS: its connections, its log of calls and its transport.
 * Invariant: both connections reconnect for ever. Closing takes seconds at most, also when the server does not answer.
 */
import { randomBytes } from 'node:crypto';
import { setBounded } from '../../kernel/bounded-map.js';
import { type Clock, sleep } from '../../kernel/clock.js';
import { isHostError } from '../../kernel/errors.js';
import type { BrokerEvent } from '../broker-events.js';
import type { Identities } from '../identities.js';
import type { Engine } from '../service/transport.js';
import { checkServer, type StartCheckOptions } from './create-stores.js';
import { HostTransport } from './host-transport.js';
import { KvCallLog } from './kv-call-log.js';
import { KvStore } from './kv-store.js';
import { hostSubject } from './names.js';
import {
  connectError,
  connectNats,
  isNoResponders,
  lostConnection,
  type NatsAddress,
  type NatsConnection,
  TurnBatch,
  watchConnection,
} from './nats-client.js';

export interface NatsHostOptions extends NatsAddress, StartCheckOptions {
  /** How long a start waits for nats-server. 30 s by default: a restart of nats-server must not end a host that starts meanwhile. */
  readonly waitMs?: number;
  readonly identities: Identities;
  readonly clock: Clock;
  readonly onEvent: (event: BrokerEvent) => void;
}

const aliveMs = 1_000;
/** Another host may need this long to reconnect after a restart of nats-server. */
const reconnectMs = 1_500;
/**
 * How long a host is remembered as gone. A worker first asks about its calls and then sends each of them again, so the question comes
 * often.
 */
const goneMs = 10_000;
const thereMs = 1_000;
const ownersMax = 1_000;
const closeMs = 2_000;
const startMs = 30_000;
const startRetryMs = 250;

/** Tries again for `startMs`, because nats-server may be starting too. */
export async function openNatsHost(options: NatsHostOptions): Promise<Engine> {
  const { clock, onEvent, waitMs = startMs } = options;
  const untilMs = clock.nowMs() + waitMs;
  for (let isReported = false; ; isReported = true) {
    try {
      return await openOnce(options);
    } catch (error) {
      const isPassing = isHostError(error) && (error.details.reason === 'unreachable' || error.code === 'transport');
      if (!isPassing || clock.nowMs() >= untilMs) throw error;
      // An address may be wrong, so the operator hears of the first failure at once.
      if (!isReported) onEvent({ kind: 'problem', error });
      await sleep(clock, startRetryMs);
    }
  }
}

async function openOnce(options: NatsHostOptions): Promise<Engine> {
  const { clock, identities, onEvent } = options;
  const owner = randomBytes(12).toString('base64url');
  const onProblem = (error: unknown) => onEvent({ kind: 'problem', error });
  const connections: NatsConnection[] = [];
  const close = () => Promise.allSettled(connections.map((each) => each.close()));
  try {
    const open = async (name: string) => {
      connections.push(await connectNats({ ...options, name, reconnects: true }));
      return connections.at(-1) as NatsConnection;
    };
    const connection = await open('hostler host');
    await checkServer(connection, options);
    const intake = await open('hostler host, calls');
    const batch = new TurnBatch();
    connection.subscribe(hostSubject(owner), { callback: (_error, message) => void message.respond() });
    const { replicas } = options;
    const store = await KvStore.open({ connection, clock, owner, onProblem, batch, replicas });
    let isConnected = true;
    void watchConnection(connection, (isBack) => {
      if (isBack === isConnected) return;
      isConnected = isBack;
      onEvent(isBack ? { kind: 'nats_restored' } : { kind: 'nats_lost', error: lostConnection(undefined) });
    });
    const log = new KvCallLog(store, goneHosts(connection, clock));
    return {
      name: 'nats',
      log,
      isLogShared: true,
      isConnected: () => isConnected,
      async open(handlers) {
        const transport = new HostTransport({
          ...{ intake, connection, handlers, identities, store: store.id, clock, onProblem, batch },
        });
        // If a connection is lost at this point, it subscribes again when it is back.
        await Promise.allSettled([intake.flush(), connection.flush()]);
        transport.notify(() => true, { op: 'serving' });
        return transport;
      },
      async close() {
        await log.close();
        // Bounded, because a server that hangs does not answer the flush.
        await Promise.race([Promise.allSettled(connections.map((each) => each.flush())), sleep(clock, closeMs)]);
        await close();
      },
    };
  } catch (error) {
    await close();
    throw connectError(error);
  }
}

/** Tells whether another host is gone. Questions about many calls of one host come together, so an answer is used for a while. */
function goneHosts(connection: NatsConnection, clock: Clock): (owner: string) => Promise<boolean> {
  const answers = new Map<string, { readonly isGone: Promise<boolean>; untilMs: number }>();
  /** A host that does not answer in time may be busy, and does not count as absent. */
  const isAbsent = (owner: string): Promise<boolean> =>
    connection.request(hostSubject(owner), undefined, { timeout: aliveMs }).then(() => false, isNoResponders);
  const look = async (owner: string): Promise<boolean> => {
    if (!(await isAbsent(owner))) return false;
    await sleep(clock, reconnectMs);
    return isAbsent(owner);
  };
  return async (owner) => {
    const known = answers.get(owner);
    if (known && known.untilMs > clock.nowMs()) return known.isGone;
    const answer = { isGone: look(owner), untilMs: Number.POSITIVE_INFINITY };
    setBounded(answers, owner, answer, ownersMax);
    const isGone = await answer.isGone;
    answer.untilMs = clock.nowMs() + (isGone ? goneMs : thereMs);
    return isGone;
  };
}
