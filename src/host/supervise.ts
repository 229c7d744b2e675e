/**
 * Creates the supervisor of a server from its definition: connects it, reads its tools, and reports notifications.
 * All servers of a host share one start gate and one detector of correlated failures.
 */

import type { ServerRun } from '../catalog/server-run.js';
import type { ServerRuns } from '../catalog/server-runs.js';
import type { FailureHistories } from '../catalog/store/failure-histories.js';
import { isPackageRunner, type ServerDefinition } from '../config/server-definition.js';
import { isAttached, isOneShot, isStdio } from '../config/server-spec.js';
import { setBounded } from '../kernel/bounded-map.js';
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { Clock } from '../kernel/clock.js';
import { Emitter } from '../kernel/emitter.js';
import { HostError, isHostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import type { Random } from '../kernel/random.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import type { AuthProvider } from '../session/auth/auth-provider.js';
import type { AuthRecovery } from '../session/auth/auth-recovery.js';
import type { Connector } from '../session/connector.js';
import type { Session } from '../session/session.js';
import { CorrelatedFailures } from '../supervisor/correlated-failures.js';
import { unexpectedError } from '../supervisor/refusals.js';
import { defaultPlan, type Ledger, type RestartPlan } from '../supervisor/restart-plan.js';
import { gateAfter, startGates } from '../supervisor/start-gate.js';
import { Supervisor } from '../supervisor/supervisor.js';
import type { SupervisorEvent, SupervisorEvents } from '../supervisor/supervisor-events.js';
import type { Channel } from '../wire/channel.js';
import { NOTIFICATION } from '../wire/methods.js';
import { fingerprintOf } from './managed-server.js';

interface SuperviseParts {
  readonly clock: Clock;
  readonly random: Random;
  readonly connector: Connector;
  readonly events: Emitter<SupervisorEvents>;
  /** `instance`: key of a client instance. */
  readonly onNotification: (
    server: string,
    method: string,
    params: Buffer | undefined,
    instance: string | undefined,
  ) => void;
  readonly runs: () => Pick<ServerRuns, 'opened'>;
  /** Called when the next request uses a token of another grant: cached answers may belong to another account. */
  readonly accountChanged: (server: string) => void;
  readonly onChannel: (server: string, channel: Channel) => void;
  readonly onProblem: (error: unknown) => void;
  /** Token source of servers over HTTP; default: the headers of the definition. */
  readonly authProvider: ((server: ServerDefinition) => AuthProvider | undefined) | undefined;
  /** Undefined: the host has no state directory. */
  readonly histories: FailureHistories | undefined;
}

export interface Supervised {
  readonly supervisor: Supervisor<Session>;
  readonly auth: AuthRecovery | undefined;
  readonly unlisten: (() => void) | undefined;
}

/** An instance of one client. It shares the tokens of the server, but neither failure detection nor events. */
interface ClientInstance {
  readonly key: string;
  readonly auth: AuthRecovery | undefined;
  readonly onEvent: (event: SupervisorEvent) => void;
}

/** A lost session counts as alive: it is renewed on its open connection, and a new connection would not help. */
const verify = async (session: Session, deadlineAtMs: number): Promise<boolean> => {
  const result = await session.probe(deadlineAtMs);
  return result === 'alive' || (result === 'unasked' && session.isLost);
};

/** The server that a new one replaces. */
export interface Predecessor {
  /** Settles when the old server has ended; the new one starts then. */
  readonly ended: Promise<void>;
  readonly ledger?: Ledger | undefined;
}

export type Supervise = (
  definition: ServerDefinition,
  predecessor?: Predecessor,
  ofClient?: ClientInstance,
) => Supervised;

export function createSupervise(parts: SuperviseParts): Supervise {
  const { clock, random, events, histories } = parts;
  const gates = startGates(clock);
  const guard = new CorrelatedFailures(clock);
  const planOf = sharedPlans();
  return (definition, predecessor, ofClient) => {
    const { name, spec, restart, isLazy, isEnabled, problem } = definition;
    const { max: maxRestarts, windowMs, onExhausted } = restart;
    const startsProcess = isStdio(spec) || isAttached(spec);
    const lossProbeMsMax = startsProcess ? defaultPlan.lossProbeMsMax : connectionProbeMsMax;
    const plan = planOf({ maxRestarts, windowMs, onExhausted, lossProbeMsMax });
    // The next process may pass another factory under this name, so the history of an attached server is not stored.
    const kept = ofClient || isAttached(spec) ? undefined : histories?.of(name, fingerprintOf(definition), plan);
    // A restored server continues with its ledger, even without a state file.
    const ledger = predecessor?.ledger;
    const history = ledger ? { ledger, remember: kept?.remember ?? (() => {}) } : kept;
    const auth = ofClient ? ofClient.auth : authOf(definition, parts);
    const gate = isStdio(spec) ? gates.processes : gates.connections;
    const supervisor: Supervisor<Session> = new Supervisor<Session>({
      name,
      clock,
      random,
      gate: predecessor ? gateAfter(predecessor.ended, gate) : gate,
      guard: ofClient ? new CorrelatedFailures(clock) : guard,
      events: ofClient ? eventsFor(ofClient) : events,
      isLazy,
      isEnabled,
      isOneShot: isOneShot(spec),
      ...(problem === undefined ? {} : { problem }),
      isFirstStartFree: isPackageRunner(spec),
      plan,
      ...(history === undefined ? {} : { history }),
      // The only closure of an idle server: `connect` creates everything else.
      connect: (run, signal, onLost) => {
        const { startMs, firstStartMs } = definition.timeouts;
        const limits = { deadlineAtMs: clock.nowMs() + (supervisor.isFirstStart ? firstStartMs : startMs), signal };
        const instance = ofClient?.key;
        const attempt = { definition, auth, supervisor, run, limits, onLost, instance };
        const once = () => connectOnce(parts, attempt).catch((error: unknown) => fail(name, error, parts));
        return auth ? auth.withRenewal(limits, once) : once();
      },
      verify,
    });
    const unlisten = auth?.onChanged(() => supervisor.tokenChanged());
    // Answers of an instance are not cached.
    if (!ofClient) auth?.onNewGrant(() => parts.accountChanged(name));
    return { supervisor, auth, unlisten };
  };
}

function eventsFor({ onEvent }: ClientInstance): Emitter<SupervisorEvents> {
  const events = new Emitter<SupervisorEvents>();
  events.on('supervisor', onEvent);
  return events;
}

interface Attempt extends Omit<Supervised, 'unlisten'> {
  readonly definition: ServerDefinition;
  readonly run: number;
  readonly limits: { readonly deadlineAtMs: number; readonly signal: CancelSignal };
  readonly onLost: (error: HostError) => void;
  readonly instance: string | undefined;
}

/** States of a run that is not being closed. */
const openStates: ReadonlySet<string> = new Set(['connecting', 'ready', 'suspect']);

async function connectOnce(parts: SuperviseParts, attempt: Attempt): Promise<Session> {
  const { clock, connector, onNotification, runs, onProblem } = parts;
  const { definition, auth, supervisor, run, limits, onLost, instance } = attempt;
  const { name, spec } = definition;
  // A close before the session is returned fails this attempt, but must not end the run: another attempt may follow.
  let isUp = false;
  let isUnattributedReported = false;
  let opened: ServerRun | undefined;
  const notified = (method: string, params?: Buffer) => {
    // Drops cached lists first, so that the run reads the changed list from the server.
    onNotification(name, method, params, instance);
    opened?.onNotification(method, params);
  };
  const session = await connector.connect(spec, {
    startTimeoutMs: Math.ceil(limits.deadlineAtMs - clock.nowMs()),
    signal: limits.signal,
    isShared: instance === undefined,
    concurrency: definition.concurrency,
    onRotated: () => {
      const now = supervisor.snapshot();
      // An operator may have stopped the server while its last requests are being finished.
      if (now.run === run && openStates.has(now.state)) void supervisor.reload().then(() => supervisor.begin());
    },
    ...(instance === undefined ? { onChannel: (channel: Channel) => parts.onChannel(name, channel) } : {}),
    ...(auth === undefined ? {} : { tokens: auth }),
    handlers: {
      closed: (error) => {
        // The supervisor events of an instance do not reach `runs`.
        if (instance !== undefined) opened?.end();
        if (isUp) onLost(error);
      },
      handlerError: onProblem,
      unattributed: (method) => {
        // Reported once per run: a server that logs a lot would fill the log. The status counts all of them.
        if (!isUnattributedReported) onProblem(unattributed(name, method));
        isUnattributedReported = true;
      },
      missed: () => supervisor.missed(run),
      answered: () => supervisor.answered(run),
      renewed: () => opened?.renewed(),
      notification: ({ method, params }) => notified(method, params),
    },
  });
  // Called before the first list is read, so that no change in between is missed.
  opened = runs().opened(name, session, notified, instance);
  let isAccountChanged = false;
  const unwatch = auth?.onNewGrant(() => {
    isAccountChanged = true;
  });
  await opened.readTools(limits).finally(() => unwatch?.());
  const { closedBy } = session;
  if (closedBy) {
    // A process whose pipe closed may still run: the next start waits for its end.
    await session.close();
    throw closedBy;
  }
  isUp = true;
  // The list may belong to the previous account.
  if (isAccountChanged) opened.onNotification(NOTIFICATION.toolsChanged);
  if (instance !== undefined) opened.ready();
  return session;
}

const unattributed = (server: string, method: string): HostError =>
  new HostError(
    'invalid_spec',
    `server '${server}': a message (${neutraliseLine(method, LIMITS.quotedChars)}) reached no client, because several open requests could have caused it`,
    {
      server,
      field: 'isolation',
      reason: 'unattributed',
      hint: `set isolation: per-client for server '${server}': each client then has its own process`,
    },
  );

/** Redacts here, because the connector knows the secrets that the text may contain. */
function fail(server: string, error: unknown, { connector }: SuperviseParts): never {
  throw isHostError(error) ? error : unexpectedError(server, error, connector.clean);
}

function authOf(definition: ServerDefinition, parts: SuperviseParts): AuthRecovery | undefined {
  const { name, spec } = definition;
  // An attached transport authorizes its requests itself.
  if (isStdio(spec) || isAttached(spec)) return undefined;
  const { authProvider, connector, onProblem } = parts;
  let provider: AuthProvider | undefined;
  try {
    provider = authProvider?.(definition);
  } catch (error) {
    // The headers of the definition still apply.
    onProblem(error);
  }
  return connector.authFor(name, connector.tokensOf(name, spec.headers, provider));
}

type OwnPlan = Pick<RestartPlan, 'maxRestarts' | 'windowMs' | 'onExhausted' | 'lossProbeMsMax'>;

/**
 * Longest pause between probes of a lost server over HTTP. It is as short as between the checks of an open breaker
 * (policy/breaker.ts), because a connection starts no process.
 */
const connectionProbeMsMax = 15_000;

/** Servers with equal settings share one plan object. */
function sharedPlans(): (own: OwnPlan) => RestartPlan {
  const plans = new Map<string, RestartPlan>();
  return (own) => {
    const { maxRestarts, windowMs, onExhausted, lossProbeMsMax } = own;
    const key = `${maxRestarts} ${windowMs} ${onExhausted} ${lossProbeMsMax}`;
    const known = plans.get(key);
    if (known) return known;
    const plan: RestartPlan = { ...defaultPlan, ...own };
    setBounded(plans, key, plan, plansMax);
    return plan;
  };
}

const plansMax = 100;
