import { expect, test } from 'vitest';
import { crashed, FakeServer } from '../../test/fakes/supervised-server.js';
import { Emitter } from '../kernel/emitter.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { CorrelatedFailures } from './correlated-failures.js';
import { StartGate } from './start-gate.js';
import { Supervisor } from './supervisor.js';
import type { SupervisorEvent, SupervisorEvents } from './supervisor-events.js';

/** Time passes at each read of the clock, as for a process that is suspended between two reads. */
class CreepingClock extends FakeClock {
  override nowMs(): number {
    this.advance(7);
    return super.nowMs();
  }
}

test('S2 an event has the time of its cause: timestamp and delay of a restart agree', async () => {
  const clock = new CreepingClock();
  const server = new FakeServer(clock);
  server.next = () => ({ error: crashed() });
  const events = new Emitter<SupervisorEvents>();
  const heard: SupervisorEvent[] = [];
  events.on('supervisor', (event) => heard.push(event));
  const supervisor = new Supervisor({
    ...{ name: 'files', connect: server.connect, clock, events, isLazy: false, random: () => 0.5 },
    ...{ gate: new StartGate(clock, { concurrent: 4 }), guard: new CorrelatedFailures(clock) },
    verify: async () => true,
  });
  supervisor.start();
  for (let i = 0; i < 50 && !heard.some(({ kind }) => kind === 'restart'); i++) await Promise.resolve();
  const { retryAtMs } = supervisor.snapshot();
  const restart = heard.find((event) => event.kind === 'restart');
  expect(restart).toBeDefined();
  expect(restart && restart.atMs + restart.delayMs).toBe(retryAtMs);
  await supervisor.dispose();
});
