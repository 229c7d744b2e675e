/**
 * Definition → supervisor: how the machine that keeps a server running is given a real server to keep.
 * All servers of a host share one gate for starts and one guard against faults of the whole host.
 */
import { availableParallelism } from 'node:os';
import { isPackageRunner, type ServerDefinition } from '../config/server-definition.js';
import type { Clock } from '../kernel/clock.js';
import type { Emitter } from '../kernel/emitter.js';
import type { Random } from '../kernel/random.js';
import type { Connector } from '../session/connector.js';
import type { ListedItem } from '../session/lists.js';
import type { Session } from '../session/session.js';
import { CorrelatedFailures } from '../supervisor/correlated-failures.js';
import { defaultPlan, type RestartPlan } from '../supervisor/restart-plan.js';
import { StartGate } from '../supervisor/start-gate.js';
import { Supervisor } from '../supervisor/supervisor.js';
import type { SupervisorEvents } from '../supervisor/supervisor-events.js';
import type { HistoryKeeper } from './history-keeper.js';
import { fingerprintOf } from './managed-server.js';
import { ToolLearner } from './tool-learner.js';

export interface SuperviseParts {
  readonly clock: Clock;
  readonly random: Random;
  readonly connector: Connector;
  readonly events: Emitter<SupervisorEvents>;
  readonly learn: (server: string, tools: readonly ListedItem[]) => void;
  readonly onProblem: (error: unknown) => void;
  /** Undefined: nothing outlives the host. */
  readonly histories: HistoryKeeper | undefined;
}

const listChanged = 'notifications/tools/list_changed';

export function createSupervise(parts: SuperviseParts): (definition: ServerDefinition) => Supervisor<Session> {
  const { clock, random, connector, events, learn, onProblem, histories } = parts;
  const gate = new StartGate(clock, { concurrent: 2 * availableParallelism() });
  const guard = new CorrelatedFailures(clock);
  return (definition) => {
    const { name, spec, restart, timeouts, isLazy, isEnabled } = definition;
    const { max: maxRestarts, windowMs, onExhausted } = restart;
    const plan: RestartPlan = { ...defaultPlan, maxRestarts, windowMs, onExhausted };
    const history = histories?.of(name, fingerprintOf(definition), plan);
    return new Supervisor<Session>({
      name,
      clock,
      random,
      gate,
      guard,
      events,
      isLazy,
      isEnabled,
      isFirstStartFree: isPackageRunner(spec),
      plan,
      ...(history === undefined ? {} : { history }),
      connect: async (_run, signal, onLost) => {
        const deadlineAtMs = clock.nowMs() + timeouts.startMs;
        const learner = new ToolLearner(clock, (tools) => learn(name, tools), onProblem);
        const session = await connector.connect(spec, {
          startTimeoutMs: timeouts.startMs,
          signal,
          handlers: {
            closed: onLost,
            handlerError: onProblem,
            notification: ({ method }) => method === listChanged && learner.changed(),
          },
        });
        await learner.begin(session, { deadlineAtMs, signal });
        return session;
      },
      verify: async (session, deadlineAtMs) => (await session.probe(deadlineAtMs)) === 'alive',
    });
  };
}
