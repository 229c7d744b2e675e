/**
 * Events of policy about calls and tools.
 * Not here: time stamps and delivery (host/host-events.ts).
 *
 * Invariant: no event contains arguments, results or credentials. Names of tools are not escaped; the code that prints them must do that.
 */
import type { ErrorCode, Execution } from '../kernel/errors.js';
import type { Circuit } from './breaker.js';
import type { PinStatus } from './pin-records.js';

/** A principal without its scopes. */
interface Caller {
  readonly id: string;
  readonly role: string | undefined;
}

export interface CallReference {
  readonly requestId: string;
  readonly principal: Caller;
  readonly tool: string;
}

/** Reason why a call could be sent again: no byte of it was sent, or its tool is trusted and may run twice. */
export type ReplayReason = 'not_executed' | 'may_run_twice';

/**
 * `needed`: the server refused the token. `recovered`: another token is available. `failed`: there is no other token, so a user has
 * to log in. `step_up`: a call needs more scopes than the login has. `dead`: the login has ended and cannot be renewed.
 */
export type AuthStatus =
  | 'needed'
  | 'recovered'
  | 'failed'
  | 'login'
  | 'logout'
  | 'refreshed'
  | 'step_up'
  | 'issuer_changed'
  | 'dead';

export type PolicyEvent =
  /** `failures`: consecutive failures after the change. */
  | { readonly kind: 'breaker'; readonly from: Circuit; readonly to: Circuit; readonly failures: number }
  | Denied
  | ({
      readonly kind: 'budget';
      readonly limit: number | undefined;
      readonly spent: number | undefined;
    } & CallReference)
  | ({ readonly kind: 'throttled'; readonly retryAfterMs: number | undefined } & CallReference)
  /** A call is about to be sent again. `attempt`: 2 for the first retry. `code`: error of the previous attempt. */
  | ({
      readonly kind: 'replay';
      readonly attempt: number;
      readonly reason: ReplayReason;
      readonly code: ErrorCode;
    } & CallReference)
  | ({ readonly kind: 'uncertain'; readonly reason: string | undefined } & CallReference)
  | {
      readonly kind: 'schema';
      readonly tool: string;
      readonly status: PinStatus;
      /** Hash of the previously approved version. */
      readonly oldHash: string | undefined;
      /** Hash of the version that is listed now or was just approved. */
      readonly newHash: string | undefined;
      readonly renamedFrom: string | undefined;
    }
  /** Items of the server's lists were repaired or left out, because clients refuse them. One sentence for each kind of item. */
  | { readonly kind: 'repaired'; readonly notes: readonly string[] }
  | { readonly kind: 'auth'; readonly status: AuthStatus }
  | ({ readonly kind: 'call' } & CallRecord);

export type GuardedAction = 'call' | 'list' | 'spawn';

interface Denied {
  readonly kind: 'denied';
  /** A read of a resource is a `call` without a tool. */
  readonly action: GuardedAction;
  readonly principal: Caller;
  /** Undefined: the request was about the server as a whole. */
  readonly tool: string | undefined;
  /** Undefined unless a tool call was denied. */
  readonly requestId: string | undefined;
}

/** One record per call, for every outcome. */
export interface CallRecord extends CallReference {
  /** Hex SHA-256 of the canonical arguments; undefined if they have no canonical form. */
  readonly argumentsHash: string | undefined;
  /** A result with `isError` also counts as `tool_error`. */
  readonly outcome: CallOutcome;
  /** Undefined if the error does not say whether the call has run. */
  readonly execution: 'executed' | Execution | undefined;
  readonly durationMs: number;
  /** Number of sends; 0 if the call was refused, cached, or shared the answer of an equal call. */
  readonly attempts: number;
  readonly fromCache: boolean;
  /** Run of the server that answered, or that got the last attempt; 0: none. */
  readonly run: number;
}

export type CallOutcome = 'ok' | ErrorCode;

/** Record of a running call, which dispatch.ts fills. */
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
  repaired: true,
  auth: true,
  call: true,
} as const satisfies Record<PolicyEvent['kind'], true>;

export const policyEventKinds = Object.keys(kinds) as readonly PolicyEvent['kind'][];
