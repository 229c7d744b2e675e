/**
 * The life of one supervised server, as a pure function of state, event, time, plan and chance.
 * Not here: what a failure costs and how long the waits are (after-failure.ts, restart-plan.ts), opening and closing
 * connections (supervisor.ts), counting failed calls (policy/breaker.ts), leases (registry.ts).
 *
 * Invariants (server-state.test.ts checks them over random event sequences):
 * - An event of an older run changes nothing, so a late reply can neither revive nor kill anything.
 * - A run is opened only when its predecessor is closed: `closing` stands between them.
 * - Unless the server is disabled, stopped, stopping or ejected, something is armed that can bring it back: an open run, a
 *   run being closed, or a timer.
 * - One restart is charged per run, whatever fails with it.
 * - A one-shot server (a connection that cannot be made again) opens one run; whatever ends it leads to `stopped`.
 */
import {
  type Aftermath,
  charged,
  type FailureContext,
  type Following,
  forborne,
  needsAuth,
  type Probe,
  park,
  probeFailed,
  retry,
} from './after-failure.js';
import { emptyLedger, type Ledger, type Reason } from './restart-plan.js';

export interface Common {
  /** The newest run that was ever opened; 0 before the first. */
  readonly run: number;
  readonly ledger: Ledger;
  readonly sinceMs: number;
}

export type ServerState = Common &
  (
    | { readonly kind: 'disabled' | 'stopped' }
    /** Known, not started: lazy, or idle for long enough. */
    | { readonly kind: 'registered' }
    | { readonly kind: 'connecting'; readonly probe: Probe | undefined }
    | ({ readonly kind: 'ready' } & Trial)
    /** Missed a sign of life: verified before the next call. */
    | ({ readonly kind: 'suspect' } & Trial)
    /** The old run is being closed; `next` is what follows. */
    | { readonly kind: 'closing'; readonly next: Following }
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

/** What a run that is up has shown so far. */
interface Trial {
  readonly wasCalled: boolean;
  readonly isProven: boolean;
  /** It came of a probe: until it is proven, its loss is a failed probe. */
  readonly probe: Probe | undefined;
}

export type FailureKind =
  | 'transient'
  /** Command missing, not MCP, bad definition: trying again at once cannot help. */
  | 'permanent'
  | 'auth';

export type ServerEvent =
  /** Somebody wants to use it: a call, a lease. */
  | { readonly kind: 'wanted' }
  | { readonly kind: 'start' | 'stop' | 'reload' | 'disable' | 'enable' | 'token_changed' | 'woke' | 'idle' }
  | { readonly kind: 'opened' | 'closed' | 'call_succeeded' | 'missed' | 'answered'; readonly run: number }
  | {
      readonly kind: 'open_failed';
      readonly run: number;
      readonly failure: FailureKind;
      readonly reason: Reason;
      /** The first start of a package runner may only be filling its cache: not charged. */
      readonly isFree?: boolean;
    }
  | { readonly kind: 'lost'; readonly run: number; readonly failure: FailureKind; readonly reason: Reason };

export type Effect =
  | { readonly do: 'open'; readonly run: number }
  /** Ends a run, or the attempt to open it; `closed` must follow. */
  | { readonly do: 'close'; readonly run: number }
  /** One timer per server; arming replaces the one before. */
  | { readonly do: 'arm'; readonly atMs: number }
  | { readonly do: 'disarm' };

export interface StepContext extends FailureContext {
  /** True while many servers fail together: nobody is charged for a fault of the host. */
  readonly isFrozen?: boolean;
  /** A lazy server waits to be wanted after a reload; others start. */
  readonly isLazy: boolean;
  /** The connection cannot be made a second time. */
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
      return wanted(state, context);
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

/** What outlives a state. */
type Lasting = Pick<Common, 'run' | 'ledger'>;
type Up = Extract<ServerState, { kind: 'ready' | 'suspect' }>;
type Connecting = Extract<ServerState, { kind: 'connecting' }>;

const unchanged = (state: ServerState): Step => [state, []];
/** Disabled, or about to be: only `enable` changes that. */
const isDisabled = (state: ServerState): boolean =>
  state.kind === 'disabled' || (state.kind === 'stopping' && state.next === 'disabled');
/** The one run that it can have was opened. */
const isUsedUp = ({ run }: ServerState, { isOneShot }: StepContext): boolean => isOneShot === true && run > 0;
const isUp = (state: ServerState): state is Up => state.kind === 'ready' || state.kind === 'suspect';

/** A start is a probe when the ledger says that the server was parked, whatever it has waited for since. */
function open({ run, ledger }: Common, { nowMs }: StepContext, asked?: Probe): Step {
  const next = run + 1;
  const probe = asked ?? (ledger.parked && { by: 'timer' });
  return [
    { kind: 'connecting', run: next, ledger, sinceMs: nowMs, probe },
    [{ do: 'disarm' }, { do: 'open', run: next }],
  ];
}

/** Lazy servers wait to be wanted. */
const openOrWait = (common: Common, context: StepContext): Step =>
  context.isLazy ? [at('registered', common, context), [{ do: 'disarm' }]] : open(common, context);

const at = <Kind extends 'registered' | 'stopped' | 'disabled'>(
  kind: Kind,
  { run, ledger }: Common,
  { nowMs }: StepContext,
): ServerState => ({ kind, run, ledger, sinceMs: nowMs });

// --- what people and callers want

function wanted(state: ServerState, context: StepContext): Step {
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

// --- what happens to a run

function becomeReady({ run, ledger, probe }: Connecting, { nowMs, plan }: StepContext): Step {
  const ready: ServerState = { kind: 'ready', run, ledger, sinceMs: nowMs, wasCalled: false, isProven: false, probe };
  return [ready, [{ do: 'arm', atMs: nowMs + plan.provenByAgeMs }]];
}

/** Only a proven server gets its budget back: one that dies a second after each start must not run for ever. */
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
  return enter({ run, ledger }, following, context);
}

function afterOpenFailed(
  { ledger, probe }: Connecting,
  { failure, reason, isFree }: Extract<ServerEvent, { kind: 'open_failed' }>,
  context: StepContext,
): Aftermath {
  if (failure === 'auth') return needsAuth(ledger, reason, context);
  if (probe) return probeFailed(ledger, probe, reason, context);
  if (failure === 'permanent') return park(ledger, reason, context);
  if (isFree) return [ledger, retry(ledger, false, reason, context)];
  if (context.isFrozen) return forborne(ledger, false, reason, context);
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
): Aftermath {
  if (failure === 'auth') return needsAuth(ledger, reason, context);
  if (context.isFrozen) return forborne(ledger, isProven, reason, context);
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

const close = (common: Lasting, then: Following, { nowMs }: StepContext): Step => [
  { kind: 'closing', run: common.run, ledger: common.ledger, sinceMs: nowMs, next: then },
  [{ do: 'disarm' }, { do: 'close', run: common.run }],
];

function enter({ run, ledger }: Lasting, following: Following, { nowMs }: StepContext): Step {
  // Spelt out: a copy of `following` with more members would have a shape of its own, which costs more than it holds.
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
