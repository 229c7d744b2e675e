import { availableParallelism } from 'node:os';
import { expect, test } from 'vitest';
import { crashed, FakeServer } from '../../test/fakes/supervised-server.js';
import { Emitter } from '../kernel/emitter.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { seededRandom } from '../kernel/random.js';
import { CorrelatedFailures } from './correlated-failures.js';
import { startGates } from './start-gate.js';
import { Supervisor } from './supervisor.js';
import type { SupervisorEvent, SupervisorEvents } from './supervisor-events.js';

/** A hundred servers behind one gate and one guard, all up and proven. */
async function hundred(seed: number) {
  const clock = new FakeClock();
  const random = seededRandom(seed);
  const gate = startGates(clock).processes;
  const guard = new CorrelatedFailures(clock);
  const events = new Emitter<SupervisorEvents>();
  const heard: SupervisorEvent[] = [];
  events.on('supervisor', (event) => heard.push(event));
  const servers = Array.from({ length: 100 }, () => new FakeServer(clock));
  const startsAtMs: number[] = [];
  let starting = 0;
  let startingMax = 0;
  const supervisors = servers.map((server, i) => {
    server.next = () => ({ afterMs: 50 + random() * 250 });
    return new Supervisor({
      name: `s${i}`,
      connect: (...args) => {
        startsAtMs.push(clock.nowMs());
        startingMax = Math.max(startingMax, ++starting);
        return server.connect(...args).finally(() => starting--);
      },
      verify: async () => true,
      clock,
      random,
      gate,
      guard,
      events,
      isLazy: false,
    });
  });
  for (const supervisor of supervisors) supervisor.start();
  await clock.advanceAsync(60_000);
  startsAtMs.length = startingMax = 0;
  heard.length = 0;
  return {
    ...{ clock, random, servers, supervisors, startsAtMs },
    ready: () => supervisors.filter((supervisor) => supervisor.snapshot().state === 'ready').length,
    count: (kind: SupervisorEvent['kind']) => heard.filter((event) => event.kind === kind).length,
    startingMax: () => startingMax,
  };
}

/** The maximum in any span of one second; `times` are in order. */
function mostInOneSecond(timesMs: readonly number[]): number {
  let from = 0;
  return timesMs.reduce((most, atMs, i) => {
    while ((timesMs[from] as number) <= atMs - 1_000) from++;
    return Math.max(most, i - from + 1);
  }, 0);
}

test.each([1, 2, 3])(
  'S4 all hundred servers die within 100 ms and all are back in a minute (seed %i)',
  async (seed) => {
    const host = await hundred(seed);
    expect(host.ready()).toBe(100);
    for (const server of host.servers) {
      host.clock.at(host.clock.nowMs() + host.random() * 100, () => server.connection?.die());
    }
    await host.clock.advanceAsync(15_000);
    expect([host.ready(), host.startsAtMs.length, host.count('parked'), host.count('freeze')]).toEqual([
      100, 100, 0, 1,
    ]);
    expect(mostInOneSecond(host.startsAtMs)).toBeLessThanOrEqual(10);
    expect(host.startingMax()).toBeLessThanOrEqual(2 * availableParallelism());
    // Proven servers can fail together again; idle servers do not count against them.
    await host.clock.advanceAsync(60_000);
    await Promise.all(host.supervisors.slice(4).map((supervisor) => supervisor.stop()));
    for (const server of host.servers.slice(0, 3)) server.connection?.die();
    expect(host.count('freeze')).toBe(2);
    await Promise.all(host.supervisors.map((supervisor) => supervisor.dispose()));
    await host.clock.advanceAsync(10_000);
    expect([host.clock.pendingTimers, host.servers.reduce((sum, { live }) => sum + live, 0)]).toEqual([0, 0]);
  },
);

test('S4 while the network of the host is down no server is parked, and all are back soon after', async () => {
  const host = await hundred(4);
  for (const server of host.servers) {
    server.next = () => ({ error: crashed() });
    server.connection?.die();
  }
  await host.clock.advanceAsync(30_000);
  expect([host.ready(), host.count('parked'), host.count('freeze')]).toEqual([0, 0, 1]);
  expect(mostInOneSecond(host.startsAtMs)).toBeLessThanOrEqual(10);
  for (const server of host.servers) server.next = () => ({});
  await host.clock.advanceAsync(20_000);
  expect([host.ready(), host.count('parked')]).toEqual([100, 0]);
});
