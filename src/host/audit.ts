/**
 * Handles the outcome of every call once, before the caller gets it: adds the request id to an error, and reports the call to
 * events and traces.
 * Not here: decisions about a call (policy/), the content of a span (tracing.ts).
 *
 * Invariants: the outcome is not changed. Arguments are reported only as a hash, which is computed when it is read.
 */
import type { Clock } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import type { GuardRequest } from '../policy/allowlist.js';
import { argumentsHash } from '../policy/canonical-json.js';
import { type Call, type CallResult, isCall, outcomeOf } from '../policy/operation.js';
import type { CallOutcome, CallRecord, CallReference, CallTrail, PolicyEvent } from '../policy/policy-events.js';
import type { JsonText } from '../wire/channel.js';
import type { Replayed } from './dispatch.js';
import type { EndSpan, Tracing } from './tracing.js';

/** Part of HostEvents. */
export interface Stream {
  /** True if there is a listener for records of calls. Read for every call. */
  readonly hasCallListeners: boolean;
  emit(server: string, event: PolicyEvent): void;
}

export interface CallFacts {
  readonly durationMs: number;
  readonly trail: CallTrail;
}

export type CallMeter = (server: string, outcome: CallOutcome, durationMs: number) => void;

/** Record of a running call; exists only if there is a listener or a trace. */
export interface CallWatch extends CallTrail {
  readonly startedMs: number;
  readonly endSpan: EndSpan | undefined;
}

export class Audit {
  readonly #stream: Stream;
  readonly #clock: Clock;
  /** Set after the configuration was read; undefined without traces. */
  tracing: Tracing | undefined;
  /** Counts calls. A record of each call would cost more than all stages of policy. */
  meter: CallMeter | undefined;

  constructor(stream: Stream, clock: Clock) {
    this.#stream = stream;
    this.#clock = clock;
  }

  /** Call it in the tick in which the call was made. Undefined: no listener and no trace. */
  begin(hostId: string, number: number, server: string, tool: string): CallWatch | undefined {
    if (this.tracing === undefined && !this.#stream.hasCallListeners) return undefined;
    const endSpan = this.tracing?.begin(`${hostId}-${number}`, server, tool);
    return { startedMs: this.#clock.nowMs(), attempts: 0, run: 0, endSpan };
  }

  /** Returns the outcome for the caller. */
  ended(call: Call, outcome: CallResult | Error, watch: CallWatch | undefined): CallResult | Error {
    if (this.meter && (!(outcome instanceof Error) || outcome instanceof HostError))
      this.meter(call.server, outcomeOf(outcome), this.#clock.nowMs() - call.madeAtMs);
    // Fast path of nearly every call: no listener, and no error that needs a request id.
    if (watch === undefined && !(outcome instanceof Error)) return outcome;
    const isOurs = outcome instanceof Error && !(outcome instanceof HostError);
    watch?.endSpan?.(isOurs ? undefined : outcome, watch);
    // An error that is not a HostError is a bug, not an outcome: it is passed on and not recorded.
    if (isOurs) return outcome;
    observe(this.#stream, call, outcome, watch && { durationMs: this.#clock.nowMs() - watch.startedMs, trail: watch });
    return outcome instanceof HostError ? ownError(outcome, call) : outcome;
  }

  /** Reports the denial of an operation that is not a tool call. */
  readonly denied = ({ server, principal: { id, role }, tool, action }: GuardRequest): void =>
    this.#stream.emit(server, { kind: 'denied', action, principal: { id, role }, tool, requestId: undefined });

  readonly replayed: Replayed = (operation, attempt, reason, { code }) => {
    if (!isCall(operation)) return;
    this.#stream.emit(operation.server, { kind: 'replay', attempt, reason, code, ...callReference(operation) });
  };
}

/**
 * Emits the policy event of a failed call first, then the record of the call. `facts` is undefined if the call began without a
 * listener.
 */
export function observe(
  stream: Stream,
  call: Call,
  outcome: CallResult | HostError,
  facts: CallFacts | undefined,
): void {
  if (outcome instanceof HostError) {
    const event = decision(call, outcome);
    if (event) stream.emit(call.server, event);
  }
  if (facts && stream.hasCallListeners) stream.emit(call.server, recordOf(call, outcome, facts));
}

export const ownError = (error: HostError, { requestId }: Call): HostError =>
  error.details.requestId === requestId ? error : error.with({ requestId });

const callReference = ({ requestId, principal: { id, role }, tool }: Call): CallReference => ({
  requestId,
  principal: { id, role },
  tool,
});

function decision(call: Call, { code, details }: HostError): PolicyEvent | undefined {
  switch (code) {
    case 'denied':
      return { kind: 'denied', action: 'call', ...callReference(call) };
    case 'budget_exceeded':
      return { kind: 'budget', limit: details.limit, spent: details.actual, ...callReference(call) };
    case 'tool_throttled':
      return { kind: 'throttled', retryAfterMs: details.retryAfterMs, ...callReference(call) };
    case 'outcome_uncertain':
      return { kind: 'uncertain', reason: details.reason, ...callReference(call) };
    default:
      return undefined;
  }
}

/** Lists every member: a spread costs ten times as much as the rest of the function. */
function recordOf(
  { requestId, principal, tool, args }: Call,
  outcome: CallResult | HostError,
  { durationMs, trail }: CallFacts,
): { readonly kind: 'call' } & CallRecord {
  const answer = outcome instanceof HostError ? undefined : outcome;
  let hash: string | undefined;
  let isHashed = false;
  return {
    kind: 'call',
    requestId,
    principal: { id: principal.id, role: principal.role },
    tool,
    get argumentsHash() {
      if (!isHashed) hash = tryHash(args);
      isHashed = true;
      return hash;
    },
    outcome: outcomeOf(outcome),
    execution: executionOf(outcome),
    durationMs,
    attempts: trail.attempts,
    fromCache: answer?.fromCache ?? false,
    run: answer?.run ?? trail.run,
  };
}

function executionOf(outcome: CallResult | HostError): CallRecord['execution'] {
  if (outcome instanceof HostError) return outcome.details.execution;
  return outcome.fromCache ? 'not_executed' : 'executed';
}

/** Arguments without a canonical form have no hash; other code decides whether they may be sent. */
function tryHash(args: JsonText): string | undefined {
  try {
    return argumentsHash(args);
  } catch {
    return undefined;
  }
}
