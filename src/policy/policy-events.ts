/**
 * Events of the policy about calls and tools.
 * Not here: stamping with time and server, and delivering (host/host-events.ts).
 *
 * Invariant: no event holds arguments, results or credentials. Names of tools are as a caller or a server wrote them:
 * the display neutralises them.
 */
import type { ErrorCode, Execution } from '../kernel/errors.js';
import type { Circuit } from './breaker.js';
import type { PinStatus } from './pin-records.js';

/** The caller, without its rights. */
interface Caller {
  readonly id: string;
  readonly role: string | undefined;
}

/** The call an event is about. */
export interface OfCall {
  readonly requestId: string;
  readonly principal: Caller;
  readonly tool: string;
}

/** Why it was safe to send a call again: no byte of it had left, or its tool may run twice and is trusted. */
export type ReplayReason = 'not_executed' | 'may_run_twice';

export type PolicyEvent =
  /** `failures` in a row, as they stand after the change. */
  | { readonly kind: 'breaker'; readonly from: Circuit; readonly to: Circuit; readonly failures: number }
  | Denied
  | ({ readonly kind: 'budget'; readonly limit: number | undefined; readonly spent: number | undefined } & OfCall)
  | ({ readonly kind: 'throttled'; readonly retryAfterMs: number | undefined } & OfCall)
  /** It is about to be sent again; `attempt` is 2 for the first time. `code` is what the attempt before ended with. */
  | ({
      readonly kind: 'replay';
      readonly attempt: number;
      readonly reason: ReplayReason;
      readonly code: ErrorCode;
    } & OfCall)
  /** It may have run; its outcome is unknown. */
  | ({ readonly kind: 'uncertain'; readonly reason: string | undefined } & OfCall)
  | {
      readonly kind: 'schema';
      readonly tool: string;
      readonly status: PinStatus;
      /** The version that was approved before. */
      readonly oldHash: string | undefined;
      /** The version that is listed now, or was approved just now. */
      readonly newHash: string | undefined;
      /** The name its body was known under. */
      readonly renamedFrom: string | undefined;
    }
  /** A server refused our token; there is another one; or a user has to log in. */
  | { readonly kind: 'auth'; readonly status: 'needed' | 'recovered' | 'failed' }
  | ({ readonly kind: 'call' } & CallRecord);

/** What a guard is asked about. */
export type GuardedAction = 'call' | 'list' | 'spawn';

/** A guard refused something. */
interface Denied {
  readonly kind: 'denied';
  /** Reading a resource is a `call` without a tool. */
  readonly action: GuardedAction;
  readonly principal: Caller;
  /** Undefined when it was about the server as a whole. */
  readonly tool: string | undefined;
  /** For tool calls only. */
  readonly requestId: string | undefined;
}

/** One per call, whatever became of it. */
export interface CallRecord extends OfCall {
  /** SHA-256 of the canonical form, in hex; undefined when the arguments have none. */
  readonly argumentsHash: string | undefined;
  /** `tool_error` also for a result with `isError`. */
  readonly outcome: CallOutcome;
  /** Undefined when the error promises nothing. */
  readonly execution: 'executed' | Execution | undefined;
  readonly durationMs: number;
  /** How often it was sent in its own name: 0 when it was refused, cached, or shared the answer to an equal call. */
  readonly attempts: number;
  readonly fromCache: boolean;
  /** The run of the server it was last sent to, or that answered; 0 for none. */
  readonly run: number;
}

export type CallOutcome = 'ok' | ErrorCode;

/** What is recorded of a call while there is a listener; the sender fills it in. */
export interface CallTrail {
  attempts: number;
  run: number;
}

const kinds = {
  breaker: true,
  denied: true,
  budget: true,
  throttled: true,
  replay: true,
  uncertain: true,
  schema: true,
  auth: true,
  call: true,
} as const satisfies Record<PolicyEvent['kind'], true>;

export const policyEventKinds = Object.keys(kinds) as readonly PolicyEvent['kind'][];
