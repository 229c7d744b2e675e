/**
 * The life of one supervised server, as a pure function of state, event, time, plan and randomness.
 * Not here: cost of a failure and delays (restart-plan.ts), opening and closing connections (supervisor.ts), counting failed
 * calls (policy/breaker.ts), leases (registry.ts).
 *
 * Invariants (server-state.test.ts checks them over random event sequences):
 * - An event of an older run changes nothing, so a late reply can neither revive nor stop a server.
 * - A run is opened only after its predecessor is closed: the state `closing` is between them.
 * - While the server waits after a failure (`backing_off`, `parked`, `auth_required`), a timer is set that starts it again.
 * - At most one restart is charged per run.
 * - A one-shot server (its connection can be made only once) opens one run; the end of that run leads to `stopped`.
 */
import {
  charged,
  emptyLedger,
  type FailureContext,
  type FailureResult,
  type Ledger,
  type NextState,
  needsAuth,
  type Probe,
  park,
  probeFailed,
  type Reason,
  retry,
  unchargedRetry,
} from './restart-plan.js';

interface Common {
  /** Number of the newest run; 0 before the first. */
  readonly run: number;
  readonly ledger: Ledger;
  readonly sinceMs: number;
}

export type ServerState = Common &
  (
    | { readonly kind: 'disabled' | 'stopped' }
    /** Not started: the server is lazy, or was closed because it was idle. */
    | { readonly kind: 'registered' }
    | { readonly kind: 'connecting'; readonly probe: Probe | undefined }
    | ({ readonly kind: 'ready' } & Trial)
    /** The server was silent too long; it is verified before the next call. */
    | ({ readonly kind: 'suspect' } & Trial)
    /** The old run is being closed; `next` follows. */
    | { readonly kind: 'closing'; readonly next: NextState }
    | { readonly kind: 'backing_off'; readonly retryAtMs: number; readonly reason: Reason }
    | {
        readonly kind: 'parked';
        readonly reason: Reason;
        readonly nextProbeAtMs: number;
        readonly nextWakeAtMs: number;
      }
    | { readonly kind: 'ejected'; readonly reason: Reason }
    | { readonly kind: 'auth_required'; readonly reason: Reason; readonly nextProbeAtMs: number }
    | { readonly kind: 'stopping'; readonly next: 'stopped' | 'disabled' | 'registered' | 'connecting' }
  );

interface Trial {
  readonly wasCalled: boolean;
  readonly isProven: boolean;
  /** The run was a probe: its loss counts as a failed probe until it is proven. */
  readonly probe: Probe | undefined;
}

export type FailureKind =
  | 'transient'
  /** The command is missing, the server does not speak MCP, or the definition is wrong: an immediate retry cannot help. */
  | 'permanent'
  | 'auth';

export type ServerEvent =
  /** A call or a lease needs the server. */
  | { readonly kind: 'wanted' }
  | { readonly kind: 'start' | 'stop' | 'reload' | 'disable' | 'enable' | 'token_changed' | 'woke' | 'idle' }
  | { readonly kind: 'opened' | 'closed' | 'call_succeeded' | 'missed' | 'answered'; readonly run: number }
  | {
      readonly kind: 'open_failed';
      readonly run: number;
      readonly failure: FailureKind;
      readonly reason: Reason;
      /** Not charged: the first start of a package runner may only fill its cache. */
      readonly isFree?: boolean;
      /** The server asked for this pause (`Retry-After`): neither a timer nor a call starts it earlier. */
      readonly pauseMs?: number | undefined;
    }
  | { readonly kind: 'lost'; readonly run: number; readonly failure: FailureKind; readonly reason: Reason };

export type Effect =
  | { readonly do: 'open'; readonly run: number }
  /** Closes a run, or its connect attempt; `closed` must follow. */
  | { readonly do: 'close'; readonly run: number }
  /** One timer per server; arming replaces the previous one. */
  | { readonly do: 'arm'; readonly atMs: number }
  | { readonly do: 'disarm' };

export interface StepContext extends FailureContext {
  /** Many servers fail together: a fault of the host, which is charged to no server. */
  readonly isFrozen?: boolean;
  /** After a reload a lazy server waits for a call; others start. */
  readonly isLazy: boolean;
  readonly isOneShot?: boolean | undefined;
}

export type Step = readonly [ServerState, readonly Effect[]];

export const initialState = (nowMs: number, isEnabled: boolean, ledger: Ledger = emptyLedger): ServerState => ({
  kind: isEnabled ? 'registered' : 'disabled',
  run: 0,
  ledger,
  sinceMs: nowMs,
});

export function step(state: ServerState, event: ServerEvent, context: StepContext): Step {
  if ('run' in event && event.run !== state.run) return unchanged(state);
  switch (event.kind) {
    case 'wanted':
      return startForCall(state, context);
    case 'woke':
      return woke(state, context);
    case 'start':
      return isDisabled(state) || isUsedUp(state, context) ? unchanged(state) : start(state, context);
    case 'reload':
      return isDisabled(state) || isUsedUp(state, context) ? unchanged(state) : reload(state, context);
    case 'stop':
      return isDisabled(state) ? unchanged(state) : end(state, 'stopped', context);
    case 'disable':
      return end(state, 'disabled', context);
    case 'enable':
      return enable(state, context);
    case 'token_changed':
      return tokenChanged(state, context);
    case 'idle':
      return idle(state, context);
    case 'opened':
      return state.kind === 'connecting' ? becomeReady(state, context) : unchanged(state);
    case 'open_failed':
      return state.kind === 'connecting' ? openFailed(state, event, context) : unchanged(state);
    case 'lost':
      return isUp(state) ? lost(state, event, context) : unchanged(state);
    case 'closed':
      return closed(state, context);
    case 'call_succeeded':
      return isUp(state) ? prove({ ...state, kind: 'ready', wasCalled: true }, context) : unchanged(state);
    case 'missed':
      return state.kind === 'ready' ? [{ ...state, kind: 'suspect' }, []] : unchanged(state);
    case 'answered':
      return state.kind === 'suspect' ? [{ ...state, kind: 'ready' }, []] : unchanged(state);
    default:
      return event satisfies never;
  }
}

type Lasting = Pick<Common, 'run' | 'ledger'>;
type Up = Extract<ServerState, { kind: 'ready' | 'suspect' }>;
type Connecting = Extract<ServerState, { kind: 'connecting' }>;

const unchanged = (state: ServerState): Step => [state, []];
/** The server is disabled or about to be; only `enable` leads out of this state. */
const isDisabled = (state: ServerState): boolean =>
  state.kind === 'disabled' || (state.kind === 'stopping' && state.next === 'disabled');
/** The only run of a one-shot server was opened already. */
const isUsedUp = ({ run }: ServerState, { isOneShot }: StepContext): boolean => isOneShot === true && run > 0;
const isUp = (state: ServerState): state is Up => state.kind === 'ready' || state.kind === 'suspect';

/** Every start of a server that was parked is a probe. */
function open({ run, ledger }: Common, { nowMs }: StepContext, asked?: Probe): Step {
  const next = run + 1;
  const probe = asked ?? (ledger.parked && { by: 'timer' });
  return [
    { kind: 'connecting', run: next, ledger, sinceMs: nowMs, probe },
    [{ do: 'disarm' }, { do: 'open', run: next }],
  ];
}

const openOrWait = (common: Common, context: StepContext): Step =>
  context.isLazy ? [at('registered', common, context), [{ do: 'disarm' }]] : open(common, context);

const at = <Kind extends 'registered' | 'stopped' | 'disabled'>(
  kind: Kind,
  { run, ledger }: Common,
  { nowMs }: StepContext,
): ServerState => ({ kind, run, ledger, sinceMs: nowMs });

// --- operators and callers

function startForCall(state: ServerState, context: StepContext): Step {
  if (state.kind === 'registered') return open(state, context);
  if (state.kind !== 'parked' || context.nowMs < state.nextWakeAtMs) return unchanged(state);
  return open(state, context, { by: 'call', nextProbeAtMs: state.nextProbeAtMs });
}

function start(state: ServerState, context: StepContext): Step {
  const forgiven = { ...state, ledger: emptyLedger };
  switch (state.kind) {
    case 'connecting':
    case 'ready':
    case 'suspect':
      return unchanged(state);
    case 'closing':
    case 'stopping':
      return [stopping(forgiven, 'connecting', context), []];
    default:
      return open(forgiven, context);
  }
}

function reload(state: ServerState, context: StepContext): Step {
  const forgiven = { ...state, ledger: emptyLedger };
  const then = context.isLazy ? 'registered' : 'connecting';
  switch (state.kind) {
    case 'connecting':
    case 'ready':
    case 'suspect':
      return [stopping(forgiven, then, context), [{ do: 'disarm' }, { do: 'close', run: state.run }]];
    case 'closing':
    case 'stopping':
      return [stopping(forgiven, then, context), []];
    default:
      return openOrWait(forgiven, context);
  }
}

function end(state: ServerState, then: 'stopped' | 'disabled', context: StepContext): Step {
  switch (state.kind) {
    case 'disabled':
      return unchanged(state);
    case 'connecting':
    case 'ready':
    case 'suspect':
      return [stopping(state, then, context), [{ do: 'disarm' }, { do: 'close', run: state.run }]];
    case 'closing':
    case 'stopping':
      return [stopping(state, then, context), [{ do: 'disarm' }]];
    case 'stopped':
      return then === 'stopped' ? unchanged(state) : [at(then, state, context), []];
    default:
      return [at(then, state, context), [{ do: 'disarm' }]];
  }
}

function enable(state: ServerState, context: StepContext): Step {
  if (!isDisabled(state)) return unchanged(state);
  const isOver = isUsedUp(state, context);
  if (state.kind === 'stopping')
    return [{ ...state, next: isOver ? 'stopped' : context.isLazy ? 'registered' : 'connecting' }, []];
  return isOver ? [at('stopped', state, context), []] : openOrWait({ ...state, ledger: emptyLedger }, context);
}

function tokenChanged(state: ServerState, context: StepContext): Step {
  return state.kind === 'auth_required' || state.kind === 'parked' ? open(state, context) : unchanged(state);
}

function idle(state: ServerState, context: StepContext): Step {
  return isUp(state) && !context.isOneShot ? close(state, { kind: 'registered' }, context) : unchanged(state);
}

const stopping = (
  { run, ledger }: Common,
  then: Extract<ServerState, { kind: 'stopping' }>['next'],
  { nowMs }: StepContext,
): ServerState => ({ kind: 'stopping', run, ledger, sinceMs: nowMs, next: then });

// --- events of a run

function becomeReady({ run, ledger, probe }: Connecting, { nowMs, plan }: StepContext): Step {
  const ready: ServerState = { kind: 'ready', run, ledger, sinceMs: nowMs, wasCalled: false, isProven: false, probe };
  return [ready, [{ do: 'arm', atMs: nowMs + plan.provenByAgeMs }]];
}

/** Only a proven server gets its restart budget back: a server that dies a second after each start must be parked. */
function prove(state: Up, { nowMs, plan }: StepContext): Step {
  if (state.isProven) return unchanged(state);
  const provenAtMs = state.sinceMs + (state.wasCalled ? plan.provenByCallMs : plan.provenByAgeMs);
  if (nowMs < provenAtMs) return [state, [{ do: 'arm', atMs: provenAtMs }]];
  return [{ ...state, isProven: true, ledger: emptyLedger }, [{ do: 'disarm' }]];
}

function openFailed(
  state: Connecting,
  event: Extract<ServerEvent, { kind: 'open_failed' }>,
  context: StepContext,
): Step {
  const { run } = state;
  if (context.isOneShot) return enter(state, { kind: 'stopped' }, context);
  const [ledger, following] = afterOpenFailed(state, event, context);
  return enter({ run, ledger }, notBefore(following, context.nowMs + (event.pauseMs ?? 0)), context);
}

function notBefore(next: NextState, atMs: number): NextState {
  if (next.kind === 'backing_off') return { ...next, retryAtMs: Math.max(next.retryAtMs, atMs) };
  if (next.kind !== 'parked') return next;
  const { nextProbeAtMs, nextWakeAtMs } = next;
  return { ...next, nextProbeAtMs: Math.max(nextProbeAtMs, atMs), nextWakeAtMs: Math.max(nextWakeAtMs, atMs) };
}

function afterOpenFailed(
  { ledger, probe }: Connecting,
  { failure, reason, isFree }: Extract<ServerEvent, { kind: 'open_failed' }>,
  context: StepContext,
): FailureResult {
  if (failure === 'auth') return needsAuth(ledger, reason, context);
  if (probe) return probeFailed(ledger, probe, reason, context);
  if (failure === 'permanent') return park(ledger, reason, context);
  if (isFree) return [ledger, retry(ledger, false, reason, context)];
  if (context.isFrozen) return unchargedRetry(ledger, false, reason, context);
  return charged(ledger, false, reason, context);
}

function lost(state: Up, event: Extract<ServerEvent, { kind: 'lost' }>, context: StepContext): Step {
  const { run } = state;
  if (context.isOneShot) return close(state, { kind: 'stopped' }, context);
  const [ledger, following] = afterLost(state, event, context);
  return close({ run, ledger }, following, context);
}

function afterLost(
  { ledger, probe, isProven }: Up,
  { failure, reason }: Extract<ServerEvent, { kind: 'lost' }>,
  context: StepContext,
): FailureResult {
  if (failure === 'auth') return needsAuth(ledger, reason, context);
  if (context.isFrozen) return unchargedRetry(ledger, isProven, reason, context);
  if (probe && !isProven) return probeFailed(ledger, { by: 'timer' }, reason, context);
  return charged(ledger, isProven, reason, context);
}

function closed(state: ServerState, context: StepContext): Step {
  if (state.kind === 'closing') return enter(state, state.next, context);
  if (state.kind !== 'stopping') return unchanged(state);
  if (state.next === 'connecting') return open(state, context);
  return [at(state.next, state, context), []];
}

function woke(state: ServerState, context: StepContext): Step {
  const { nowMs } = context;
  switch (state.kind) {
    case 'backing_off':
      return nowMs >= state.retryAtMs ? open(state, context) : [state, [{ do: 'arm', atMs: state.retryAtMs }]];
    case 'parked':
    case 'auth_required':
      if (nowMs < state.nextProbeAtMs) return [state, [{ do: 'arm', atMs: state.nextProbeAtMs }]];
      return open(state, context);
    case 'ready':
    case 'suspect':
      return prove(state, context);
    default:
      return unchanged(state);
  }
}

// --- between two runs

const close = (common: Lasting, then: NextState, { nowMs }: StepContext): Step => [
  { kind: 'closing', run: common.run, ledger: common.ledger, sinceMs: nowMs, next: then },
  [{ do: 'disarm' }, { do: 'close', run: common.run }],
];

function enter({ run, ledger }: Lasting, following: NextState, { nowMs }: StepContext): Step {
  // Each case builds its own literal: a spread of `following` would create one more object shape per state.
  switch (following.kind) {
    case 'backing_off': {
      const { kind, retryAtMs, reason } = following;
      return [{ kind, run, ledger, sinceMs: nowMs, retryAtMs, reason }, [{ do: 'arm', atMs: retryAtMs }]];
    }
    case 'parked': {
      const { kind, reason, nextProbeAtMs, nextWakeAtMs } = following;
      const parked = { kind, run, ledger, sinceMs: nowMs, reason, nextProbeAtMs, nextWakeAtMs };
      return [parked, [{ do: 'arm', atMs: nextProbeAtMs }]];
    }
    case 'auth_required': {
      const { kind, reason, nextProbeAtMs } = following;
      return [{ kind, run, ledger, sinceMs: nowMs, reason, nextProbeAtMs }, [{ do: 'arm', atMs: nextProbeAtMs }]];
    }
    case 'ejected':
      return [{ kind: 'ejected', run, ledger, sinceMs: nowMs, reason: following.reason }, [{ do: 'disarm' }]];
    case 'registered':
      return [{ kind: 'registered', run, ledger, sinceMs: nowMs }, [{ do: 'disarm' }]];
    case 'stopped':
      return [{ kind: 'stopped', run, ledger, sinceMs: nowMs }, [{ do: 'disarm' }]];
    default:
      return following satisfies never;
  }
}

// --- queries of supervisor.ts

/** Time at which the timer starts a server that is not up. */
export const wakesAtMs = (state: ServerState): number | undefined =>
  state.kind === 'backing_off' ? state.retryAtMs : 'nextProbeAtMs' in state ? state.nextProbeAtMs : undefined;

/** No run is open and none is planned by a restart. */
export const isAtRest = (kind: ServerState['kind']): boolean =>
  ['registered', 'stopped', 'disabled', 'parked', 'ejected', 'auth_required'].includes(kind);

/** The run is closed on request or because it is idle, not because it failed. */
export const isOrderly = (state: ServerState): boolean =>
  state.kind === 'stopping' || (state.kind === 'closing' && state.next.kind === 'registered');
