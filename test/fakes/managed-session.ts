/**
 * A managed server over a session that the test makes, without process and registry, on one clock.
 */
import { parseServerDefinition } from '../../src/config/server-definition.js';
import { ManagedServer } from '../../src/host/managed-server.js';
import { Emitter } from '../../src/kernel/emitter.js';
import type { FakeClock } from '../../src/kernel/fake-clock.js';
import type { Session } from '../../src/session/session.js';
import { CorrelatedFailures } from '../../src/supervisor/correlated-failures.js';
import type { CallHold } from '../../src/supervisor/registry.js';
import { StartGate } from '../../src/supervisor/start-gate.js';
import { Supervisor } from '../../src/supervisor/supervisor.js';
import type { SupervisorEvents } from '../../src/supervisor/supervisor-events.js';

export function managedSession(
  name: string,
  session: Partial<Session>,
  clock: FakeClock,
  entry: Record<string, unknown> = {},
  hold: CallHold = { enter() {}, leave() {} },
): ManagedServer {
  const supervisor = new Supervisor<Session>({
    name,
    clock,
    random: () => 0.5,
    gate: new StartGate(clock),
    guard: new CorrelatedFailures(clock),
    events: new Emitter<SupervisorEvents>(),
    isLazy: true,
    connect: () => Promise.resolve(session as Session),
    verify: () => Promise.resolve(true),
  });
  return new ManagedServer(parseServerDefinition(name, { command: 'none', ...entry }, true), supervisor, hold, clock);
}
