/**
 * What comes and goes ten thousand times in fake time leaves nothing behind: a server that dies behind a broker, connections of
 * workers at the broker, and the broker in the eyes of one worker. Whatever a round could leave is counted: timers, tables,
 * descriptors, and the heap after its garbage was collected.
 */
import { readdirSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { seededRandom } from '../../src/kernel/random.js';
import { coreBench, hostCredential, worker } from '../broker/embedded/core-bench.js';
import { mailbox, makeRig, outcomeOf } from '../broker/worker/worker-rig.js';
import { SimulatedBroker } from './simulated-broker.js';

/** Rounds that are judged. */
const rounds = 8_000;
/** By then everything that is made once is made. A whole host takes longer: its heap was seen to grow until round 12,000 and no further. */
const warmRounds = 6_000;
const warmHostRounds = 12_000;
const roundsPerLook = 1_000;
/** Less than the smallest thing that a round could leave. */
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
 * Compares the heap after the first rounds with that after the last, each by the smaller of two looks: what V8 keeps for a while is
 * not in both. Looks come at regular distances from the start on, because V8 drops unused code after some collections.
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
  const { host, core, service, journal } = broker;
  const { simulated, managed } = host.member('flappy');
  const outcomes = new Map<string, number>();
  let lives = 0;
  const life = async () => {
    const { session } = simulated;
    // Half of them die with a call under way.
    const how = broker.call(lives % 2 === 0 ? 'read' : 'write', 30_000);
    if (lives % 4 < 2) Object.assign(simulated, { faultRate: 1, faults: ['crash_sent'] });
    await broker.advance(1_200);
    simulated.mend();
    session?.die('exit');
    // Until it is there again and nobody waits.
    for (let n = 0; n < 100 && (broker.open > 0 || managed.supervisor.snapshot().state !== 'ready'); n++)
      await broker.advance(25_000);
    const outcome = await how;
    outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
    lives++;
    // What the simulation writes down is not the host's.
    host.trace.length = 0;
    simulated.ledger.clear();
  };
  const timers = () => host.clock.pendingTimers - host.timers.pending;
  await flat('AC-X3 server', warmHostRounds, life, timers);
  expect([host.wrong, simulated.live, simulated.liveMax]).toEqual([[], 1, 1]);
  expect([journal.size, service.status().running, service.status().waiting]).toEqual([0, 0, 0]);
  expect(core.status().mailboxes).toMatchObject([
    { mailbox: 'host', count: 0, held: 0 },
    { mailbox: 'ann', count: 0, held: 0 },
  ]);
  // There was something to see.
  expect(Number(managed.supervisor.snapshot().run)).toBeGreaterThanOrEqual(rounds);
  expect(outcomes.get('outcome_uncertain uncertain')).toBeGreaterThan(rounds / 10);
  expect(outcomes.get('ok')).toBeGreaterThan(rounds / 10);
  await broker.close();
  expect(timers()).toBe(0);
});

test('AC-X3 ten thousand connections of workers that come and are lost at any moment leave nothing at the broker', {
  timeout: 180_000,
}, async () => {
  const names = Array.from({ length: 20 }, (_, n) => `w${n}`);
  const { core, clock, client, settle, events } = await coreBench({}, [
    ...names.map((name) => worker(name)),
    hostCredential,
  ]);
  const host = client().subscribed('host');
  await settle();
  const idleTimers = clock.pendingTimers;
  const counts = { sent: 0, requests: 0, ended: 0 };
  let number = 0;
  const connection = async () => {
    const at = number++;
    const name = names[at % names.length] as string;
    const one = client();
    // As far as it comes: nothing, a hello, a mailbox, a request that is on its way, one that a host has, with its reply unread.
    const far = at % 6;
    if (far >= 1) one.hello(name);
    if (far >= 2) one.say({ kind: 'subscribe' });
    if (far >= 3) counts.sent++;
    if (far >= 3) one.say({ kind: 'deliver', id: `r${at}`, type: 'request', to: 'host', ttlMs: 1_000, body: {} });
    if (far >= 4) await settle();
    if (far === 5) {
      one.wire.isReading = false;
      host.say({ kind: 'deliver', id: `r${at}`, type: 'reply', to: name, body: {} });
      await settle();
    }
    one.reader.ended('closed with 1006');
    await settle();
    for (const frame of host.wire.frames.splice(0)) {
      if (frame.kind !== 'message') continue;
      counts.requests++;
      host.ack(frame);
    }
    // The reply that it did not take is taken when it comes again.
    if (far === 5) {
      const again = client().subscribed(name);
      await settle();
      for (const frame of again.of('message')) again.ack(frame);
      again.reader.ended('closed with 1000');
      counts.ended++;
    }
    host.reader.heard();
    clock.advance(100);
    events.length = 0;
  };
  await flat('AC-X3 links', warmRounds, connection, () => clock.pendingTimers);
  await settle();
  expect(clock.pendingTimers).toBe(idleTimers);
  expect(core.status()).toMatchObject({ connections: 1, held: 0, deadLetters: 0 });
  expect(core.status().mailboxes).toMatchObject([{ mailbox: 'host', count: 0, bytes: 0, held: 0 }]);
  expect(core.hasRoom).toBe(true);
  // Of every six connections three send a request, and one does not take its reply.
  const all = warmRounds + rounds;
  expect(counts).toEqual({
    sent: counts.requests,
    requests: Math.floor((all * 3) / 6) - 1,
    ended: Math.floor(all / 6),
  });
  await core.close();
  expect(clock.pendingTimers).toBe(0);
});

test('AC-X3 ten thousand losses of its connection leave nothing in a worker, which is there again each time', {
  timeout: 180_000,
}, async () => {
  const { tools, broker, host, clock } = await makeRig();
  let number = 0;
  const loss = async () => {
    broker.cut(mailbox);
    const isAsked = number++ % 10 === 0;
    const call = isAsked ? outcomeOf(tools.execute('nova', 'click', {})) : Promise.resolve('click {}');
    await clock.advanceAsync(3_000);
    expect(tools.status().state).toBe('ready');
    expect(await call).toBe('click {}');
    // What the fakes write down is not the worker's.
    for (const list of [broker.sends, broker.cancels, host.deliveries, host.ran, host.cancelled]) list.length = 0;
    host.forget();
  };
  await flat('AC-X3 worker', warmRounds, loss, () => clock.pendingTimers);
  expect(tools.status()).toMatchObject({ inFlight: 0, inFlightBytes: 0 });
  expect(tools.status().connections).toBeGreaterThanOrEqual(rounds);
  await tools.close();
});
