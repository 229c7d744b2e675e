/**
 * Definition → supervisor: how the machine that keeps a server running is given a real server to keep.
 * All servers of a host share one gate for starts and one guard against faults of the whole host.
 */
import { availableParallelism } from 'node:os';
import { isPackageRunner, type ServerDefinition } from '../config/server-definition.js';
import { isStdio } from '../config/server-spec.js';
import type { Clock } from '../kernel/clock.js';
import type { Emitter } from '../kernel/emitter.js';
import type { HostError } from '../kernel/errors.js';
import type { Random } from '../kernel/random.js';
import { type AuthProvider, staticHeaderProvider } from '../session/auth-provider.js';
import type { AuthRecovery } from '../session/auth-recovery.js';
import type { Connector } from '../session/connector.js';
import type { ServerList } from '../session/lists.js';
import type { Session } from '../session/session.js';
import { CorrelatedFailures } from '../supervisor/correlated-failures.js';
import { defaultPlan, type Ledger, type RestartPlan } from '../supervisor/restart-plan.js';
import { gateAfter, StartGate } from '../supervisor/start-gate.js';
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
  /** A reading of the server's tools begins; what is returned is handed the list. */
  readonly reading: (server: string) => (list: ServerList) => void;
  /** A notification came in. */
  readonly heard: (server: string, method: string, params: Buffer | undefined) => void;
  readonly onProblem: (error: unknown) => void;
  /** For servers over HTTP; without one, what the definition says is all there is. */
  readonly authProvider: ((server: ServerDefinition) => AuthProvider | undefined) | undefined;
  /** Undefined: nothing outlives the host. */
  readonly histories: HistoryKeeper | undefined;
}

export interface Supervised {
  readonly supervisor: Supervisor<Session>;
  /** Of a server over HTTP. */
  readonly auth: AuthRecovery | undefined;
}

/** What came before a server that is put in the place of another. */
export interface Predecessor {
  /** Settles when nothing of it runs; nothing is started before. */
  readonly gone: Promise<void>;
  /** What is held against the server that comes back. */
  readonly ledger?: Ledger | undefined;
}

export type Supervise = (definition: ServerDefinition, predecessor?: Predecessor) => Supervised;

const listChanged = 'notifications/tools/list_changed';

export function createSupervise(parts: SuperviseParts): Supervise {
  const { clock, random, connector, events, reading, heard, onProblem, histories } = parts;
  const gate = new StartGate(clock, { concurrent: 2 * availableParallelism() });
  const guard = new CorrelatedFailures(clock);
  return (definition, predecessor) => {
    const { name, spec, restart, timeouts, isLazy, isEnabled } = definition;
    const { max: maxRestarts, windowMs, onExhausted } = restart;
    const plan: RestartPlan = { ...defaultPlan, maxRestarts, windowMs, onExhausted };
    const kept = histories?.of(name, fingerprintOf(definition), plan);
    const ledger = predecessor?.ledger ?? kept?.ledger;
    const history = ledger && { ledger, remember: kept?.remember ?? (() => {}) };
    const auth = authOf(definition, parts);
    const connect = async (deadlineAtMs: number, signal: AbortSignal, onLost: (error: HostError) => void) => {
      const learner = new ToolLearner(clock, () => reading(name), onProblem);
      // What ends before it is handed over fails this attempt, and must not end the run: another attempt may follow.
      let isUp = false;
      const session = await connector.connect(spec, {
        startTimeoutMs: Math.ceil(deadlineAtMs - clock.nowMs()),
        signal,
        ...(auth === undefined ? {} : { tokens: auth }),
        handlers: {
          closed: (error) => isUp && onLost(error),
          handlerError: onProblem,
          notification: ({ method, params }) => {
            // What is kept is forgotten first: the learner's own reading is the first of the new one.
            heard(name, method, params);
            if (method === listChanged) learner.changed();
          },
        },
      });
      await learner.begin(session, { deadlineAtMs, signal });
      if (session.closedBy) throw session.closedBy;
      isUp = true;
      return session;
    };
    const supervisor: Supervisor<Session> = new Supervisor({
      name,
      clock,
      random,
      gate: predecessor ? gateAfter(predecessor.gone, gate) : gate,
      guard,
      events,
      isLazy,
      isEnabled,
      isFirstStartFree: isPackageRunner(spec),
      plan,
      ...(history === undefined ? {} : { history }),
      connect: (_run, signal, onLost) => {
        const startMs = supervisor.isFirstStart ? timeouts.firstStartMs : timeouts.startMs;
        const deadlineAtMs = clock.nowMs() + startMs;
        const once = () => connect(deadlineAtMs, signal, onLost);
        return auth ? auth.withRenewal({ deadlineAtMs, signal }, once) : once();
      },
      verify: async (session, deadlineAtMs) => (await session.probe(deadlineAtMs)) === 'alive',
    });
    auth?.onChanged(() => supervisor.tokenChanged());
    return { supervisor, auth };
  };
}

function authOf(definition: ServerDefinition, parts: SuperviseParts): AuthRecovery | undefined {
  const { name, spec } = definition;
  if (isStdio(spec)) return undefined;
  const { authProvider, connector, onProblem } = parts;
  let provider: AuthProvider | undefined;
  try {
    provider = authProvider?.(definition);
  } catch (error) {
    // The server still has what its definition says; if that is not enough, it says so itself.
    onProblem(error);
  }
  return connector.authFor(name, provider ?? staticHeaderProvider(spec.headers));
}
