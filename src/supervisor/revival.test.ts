/** Tests when a lost server is started again, to the millisecond, on a fake clock. */
import { describe, expect, test } from 'vitest';
import { crashed, type FakeConnection, FakeServer } from '../../test/fakes/supervised-server.js';
import { Emitter } from '../kernel/emitter.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { CorrelatedFailures } from './correlated-failures.js';
import { StartGate } from './start-gate.js';
import { Supervisor } from './supervisor.js';
import type { SupervisorEvent, SupervisorEvents } from './supervisor-events.js';

function setUp(chance: number) {
  const clock = new FakeClock();
  const server = new FakeServer(clock);
  const events = new Emitter<SupervisorEvents>();
  const delaysMs: number[] = [];
  events.on('supervisor', (event: SupervisorEvent) => event.kind === 'restart' && delaysMs.push(event.delayMs));
  const supervisor = new Supervisor<FakeConnection>({
    name: 'files',
    connect: server.connect,
    verify: () => Promise.resolve(true),
    clock,
    random: () => chance,
    gate: new StartGate(clock),
    guard: new CorrelatedFailures(clock),
    events,
    isLazy: false,
  });
  supervisor.start();
  return { clock, server, supervisor, delaysMs, state: () => supervisor.snapshot().state };
}

/** Kills the server. Returns the time until the next start, and the time until the server was ready. */
async function revival({ clock, server, state }: ReturnType<typeof setUp>, startMs: number) {
  const { starts } = server;
  const lostAtMs = clock.nowMs();
  server.connection?.die(crashed());
  await clock.advanceAsync(0);
  while (server.starts === starts) await clock.advanceAsync(1);
  const spawnedMs = (server.startedAtMs.at(-1) as number) - lostAtMs;
  await clock.advanceAsync(startMs - 1);
  expect(state()).toBe('connecting');
  await clock.advanceAsync(1);
  expect(state()).toBe('ready');
  return { spawnedMs, readyMs: clock.nowMs() - lostAtMs };
}

describe('S2 revival on a fake clock:', () => {
  test.each([
    [0, [50, 100, 200, 400, 800]],
    [0.5, [75, 150, 300, 600, 1_200]],
    [1, [100, 200, 400, 800, 1_600]],
  ])(
    'with chance %d an unproven server waits exactly %j ms, and is ready after the time of its own start',
    async (chance, delaysMs) => {
      const bench = setUp(chance);
      await bench.clock.advanceAsync(0);
      bench.server.next = () => ({ afterMs: 40 });
      const seen = [];
      for (let i = 0; i < delaysMs.length; i++) seen.push(await revival(bench, 40));
      expect(seen).toEqual(delaysMs.map((delayMs) => ({ spawnedMs: delayMs, readyMs: delayMs + 40 })));
      expect(bench.delaysMs).toEqual(delaysMs);
    },
  );

  test.each([
    [0, 0],
    [0.25, 25],
    [1, 100],
  ])('with chance %d the first restart of a proven server follows after exactly %d ms', async (chance, delayMs) => {
    const bench = setUp(chance);
    await bench.clock.advanceAsync(30_000);
    bench.server.next = () => ({ afterMs: 40 });
    expect(await revival(bench, 40)).toEqual({ spawnedMs: delayMs, readyMs: delayMs + 40 });
    expect(bench.delaysMs).toEqual([delayMs]);
  });

  test('the delay begins with the loss: the time for closing is part of it', async () => {
    const bench = setUp(1);
    bench.server.next = () => ({ closeMs: 30 });
    await bench.clock.advanceAsync(0);
    await bench.supervisor.reload();
    await bench.clock.advanceAsync(0);
    bench.server.next = () => ({ afterMs: 40 });
    expect(await revival(bench, 40)).toEqual({ spawnedMs: 100, readyMs: 140 });
    expect(bench.delaysMs).toEqual([70]);
  });
});
