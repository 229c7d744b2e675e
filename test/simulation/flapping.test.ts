/**
 * Ten thousand deaths in fake time leave nothing behind: of a server behind a broker, of workers at the service, and of the
 * connection of one worker. Timers, tables, descriptors and the heap after garbage collection are counted.
 */
import { readdirSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import type { HostMessage } from '../../src/broker/protocol/messages.js';
import { manifestBody, resultBody } from '../../src/broker/protocol/reply-body.js';
import { BrokerService } from '../../src/broker/service/broker-service.js';
import type { WorkerSession } from '../../src/broker/service/transport.js';
import type { OpenConnection } from '../../src/broker/worker/connection.js';
import { RemoteTools } from '../../src/broker/worker/remote-tools.js';
import { HostError } from '../../src/kernel/errors.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { seededRandom } from '../../src/kernel/random.js';
import { FakeUpstreams } from '../fakes/fake-upstreams.js';
import { MemoryCallLog, MemoryRows } from '../fakes/memory-call-log.js';
import { SimulatedBroker } from './simulated-broker.js';

/** The measured rounds. */
const rounds = 8_000;
/**
 * After these rounds everything that is created once exists. A complete host needs more: its heap grew until round 12,000 and no
 * further.
 */
const warmRounds = 6_000;
const warmHostRounds = 12_000;
const roundsPerLook = 1_000;
/** Smaller than the smallest object that a round could leave. */
const grownBytesPerRoundMax = 50;

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

async function heapBytes(): Promise<number> {
  for (let n = 0; n < 5; n++) {
    await new Promise((resolve) => setImmediate(resolve));
    collect();
  }
  return process.memoryUsage().heapUsed;
}

const descriptors = (): number => readdirSync('/proc/self/fd').length;

/**
 * Compares the heap after the first rounds with the heap after the last ones. Each is the smaller of two measurements, because
 * memory that V8 keeps for a while is in one of them only. The heap is measured at regular intervals from the start on, because
 * V8 drops unused code after some collections.
 */
async function flat(id: string, warm: number, round: () => Promise<void>, timers: () => number): Promise<void> {
  const heaps: number[] = [];
  const run = async (count: number) => {
    for (let n = 1; n <= count; n++) {
      await round();
      if (n % roundsPerLook === 0) heaps.push(await heapBytes());
    }
    return Math.min(...heaps.slice(-2));
  };
  const before = await run(warm);
  const [timersBefore, fdsBefore] = [timers(), descriptors()];
  const grownPerRound = Math.round(((await run(rounds)) - before) / rounds);
  console.log(`${id}: ${grownPerRound} bytes in each of ${rounds} rounds`);
  expect([timers(), descriptors()]).toEqual([timersBefore, fdsBefore]);
  expect(grownPerRound).toBeLessThanOrEqual(grownBytesPerRoundMax);
}

test('AC-X3 ten thousand lives of a server behind a broker, each ended by a death, leave nothing', {
  timeout: 180_000,
}, async () => {
  const broker = await SimulatedBroker.open(seededRandom(3), 'flappy', {
    ...{ timeouts: { call: '1s' }, restart: { max: 1_000, window: '1s' } },
  });
  const { host, service, rows } = broker;
  const { simulated, managed } = host.member('flappy');
  const outcomes = new Map<string, number>();
  let lives = 0;
  const life = async () => {
    const { session } = simulated;
    // Half of the lives end during a call.
    const how = broker.call(lives % 2 === 0 ? 'read' : 'write', 30_000);
    if (lives % 4 < 2) Object.assign(simulated, { faultRate: 1, faults: ['crash_sent'] });
    await broker.advance(1_200);
    simulated.mend();
    session?.die('exit');
    // Until the server is ready again and no call waits.
    for (let n = 0; n < 100 && (broker.open > 0 || managed.supervisor.snapshot().state !== 'ready'); n++)
      await broker.advance(25_000);
    const outcome = await how;
    outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
    lives++;
    // The records of the simulation do not belong to the host.
    host.trace.length = 0;
    simulated.ledger.clear();
  };
  const timers = () => host.clock.pendingTimers - host.timers.pending;
  await flat('AC-X3 server', warmHostRounds, life, timers);
  expect([host.wrong, simulated.live, simulated.liveMax]).toEqual([[], 1, 1]);
  expect([rows.rows.size, service.status().running, service.status().waiting]).toEqual([0, 0, 0]);
  // The test covered real losses.
  expect(Number(managed.supervisor.snapshot().run)).toBeGreaterThanOrEqual(rounds);
  expect(outcomes.get('outcome_uncertain uncertain')).toBeGreaterThan(rounds / 10);
  expect(outcomes.get('ok')).toBeGreaterThan(rounds / 10);
  await broker.close();
  expect(timers()).toBe(0);
});

test('AC-X3 ten thousand workers that come and are lost at any moment leave nothing at the service', {
  timeout: 180_000,
}, async () => {
  const clock = new FakeClock();
  const host = new FakeUpstreams({ nova: { tools: ['click'] } });
  const rows = new MemoryRows(clock);
  const service = new BrokerService({
    ...{ host, log: new MemoryCallLog(clock, rows), clock, runningPerWorker: 64 },
    isRolelessAllowed: () => true,
  });
  let number = 0;
  const counts = { sent: 0, replies: 0 };
  const life = async () => {
    const at = number++;
    const identity = { name: `w${at % 20}`, epoch: 'e', role: undefined };
    let isReading = true;
    const heard: string[] = [];
    const session: WorkerSession = {
      ...{ ...identity, id: `s${at}`, identity: () => identity },
      send: (message) => {
        if (message.op === 'reply' && isReading) heard.push(message.key);
        return isReading;
      },
    };
    // Each worker gets to another point: nothing, a hello, its manifest, a call, a call whose reply it does not read.
    const far = at % 5;
    if (far >= 1) service.connected(session);
    if (far >= 2) await service.manifest(session);
    if (far >= 3) {
      isReading = far === 3;
      counts.sent++;
      service.heard(session, {
        ...{ op: 'call', key: `k${at}`, deadlineMs: 1_000, server: 'nova', tool: 'click', args: Buffer.from('{}') },
        ...{ sentBefore: undefined, isCallersKey: false, wantsProgress: false, manifestRevision: undefined },
        trace: undefined,
      });
      for (let turn = 0; turn < 6; turn++) await new Promise((resolve) => setImmediate(resolve));
    }
    // A reply that was not read is asked for by the next connection of the session.
    if (far === 4) {
      isReading = true;
      await service.ask(session, [`k${at}`]);
    }
    counts.replies += heard.length;
    if (heard.length > 0) service.heard(session, { op: 'ack', keys: heard });
    clock.advance(100);
    host.calls.length = 0;
    host.listingsRequested.length = 0;
  };
  await flat('AC-X3 sessions', warmRounds, life, () => clock.pendingTimers);
  expect([rows.rows.size, service.status().running, service.status().waiting]).toEqual([0, 0, 0]);
  const all = warmRounds + rounds;
  expect(counts).toEqual({ sent: (all * 2) / 5, replies: (all * 2) / 5 });
  service.close();
  expect(clock.pendingTimers).toBe(0);
});

test('AC-X3 ten thousand losses of its connection leave nothing in a worker, which is ready again each time', {
  timeout: 180_000,
}, async () => {
  const clock = new FakeClock();
  const connections = new MemoryConnections();
  const tools = new RemoteTools({ open: connections.open, clock, random: seededRandom(5) });
  await clock.advanceAsync(1_000);
  let number = 0;
  const loss = async () => {
    connections.cut();
    const isAsked = number++ % 10 === 0;
    const call = isAsked ? tools.execute('nova', 'click', {}) : undefined;
    await clock.advanceAsync(3_000);
    expect(tools.status().state).toBe('ready');
    if (call !== undefined) expect((await call).bytes.toString()).toBe('{"content":[]}');
  };
  await flat('AC-X3 worker', warmRounds, loss, () => clock.pendingTimers);
  expect(tools.status()).toMatchObject({ inFlight: 0, inFlightBytes: 0 });
  expect(tools.status().connections).toBeGreaterThanOrEqual(rounds);
  await tools.close();
});

/** Connections of one worker, each ended by `cut`. Each call is answered at once. */
class MemoryConnections {
  cut: () => void = () => {};

  readonly open: OpenConnection = async ({ heard }) => {
    const closed = new Promise<HostError | undefined>((resolve) => {
      this.cut = () => resolve(new HostError('transport', 'the connection to the broker was lost'));
    });
    const answer = (message: HostMessage) => queueMicrotask(() => heard(message));
    return {
      ...{ worker: 'ann', role: undefined, storeId: 'store', closed, answerMs: 10_000, isUnread: false },
      send: (message) => {
        if (message.op === 'manifest') answer({ op: 'manifest', id: message.id, body: manifest });
        if (message.op === 'ask') answer({ op: 'asked', id: message.id, running: [], resend: [] });
        if (message.op !== 'call') return true;
        answer({ op: 'receipt', key: message.key, owner: 'host', storeId: 'store' });
        answer({ op: 'reply', key: message.key, body: resultBody(Buffer.from('{"content":[]}'), 'legacy') });
        return true;
      },
      close: async () => this.cut(),
    };
  };
}

const raw = Buffer.from('{"name":"click","inputSchema":{"type":"object"}}');
const manifest = manifestBody({ revision: 'r1', tools: [{ server: 'nova', name: 'click', raw }] });
