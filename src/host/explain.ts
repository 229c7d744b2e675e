/**
 * Why somebody sees a tool or does not, and what a call of it would meet now: one pure function over what the host knows.
 * Not here: gathering the facts (explain-now.ts), output (cli/why.ts); what hangs on the arguments or shows only
 * when a call is sent, which is the cache, throttles of single tools and a free place (caller.ts).
 *
 * Invariants: asking changes nothing: nothing is charged, started, woken or told; what is said about a call is decided by the
 * same rules that decide about calls, in their order.
 */
import type { ServerDefinition } from '../config/server-definition.js';
import type { HostError } from '../kernel/errors.js';
import type { Principal } from '../policy/call.js';
import { embedder } from '../policy/call.js';
import type { BudgetLeft } from '../policy/call-budget.js';
import { pinRefusal } from '../policy/pin-stage.js';
import type { PinRecord, PinStatus } from '../policy/pin-store.js';
import type { StatusRow } from './status.js';

export interface ExplainFacts {
  readonly definition: ServerDefinition;
  readonly principal: Principal;
  readonly tool: string | undefined;
  /** Whether it was ever listed; undefined when the server's tools are not known. */
  readonly isListed: boolean | undefined;
  /** What a list or a call of it is refused with by the rules; undefined when they allow it. */
  readonly denial: HostError | undefined;
  readonly row: StatusRow;
  /** When an open breaker lets the next call pass, from now. */
  readonly breakerRetryAfterMs: number | undefined;
  readonly cacheEntries: number;
  readonly budget: BudgetLeft | undefined;
  readonly pin: { readonly status: PinStatus; readonly record: PinRecord | undefined } | undefined;
  /** What its supervisor refuses callers with now. */
  readonly refusal: HostError | undefined;
  /** How long it has to be parked until a call tries it. */
  readonly wakeAfterMs: number;
}

/** What a call would meet first, in the order of the stages. */
export type CallForecast =
  | { readonly outcome: 'passes' | 'starts' | 'waits' | 'tries' }
  | {
      readonly outcome: 'refused';
      readonly code: string;
      readonly reason: string;
      readonly hint: string | undefined;
      readonly retryAfterMs: number | undefined;
    };

export interface Explanation {
  readonly server: string;
  readonly tool: string | undefined;
  readonly principal: { readonly id: string; readonly role: string | undefined };
  readonly visible: boolean;
  /** The rule that shows or hides it. */
  readonly rule: string;
  readonly state: Pick<StatusRow, 'state' | 'since' | 'forMs' | 'nextProbeAt' | 'nextProbeInMs' | 'lastError'>;
  readonly breaker: {
    readonly circuit: StatusRow['circuit'];
    readonly failures: number;
    readonly threshold: number;
    readonly retryAfterMs: number | undefined;
  };
  readonly cache: { readonly policy: 'on' | 'off'; readonly entries: number };
  readonly budget: BudgetLeft | undefined;
  readonly pin:
    | {
        readonly status: PinStatus;
        readonly approvedHash: string | undefined;
        readonly listedHash: string | undefined;
        readonly blocks: boolean;
      }
    | undefined;
  readonly call: CallForecast;
  /** Whether a call now would start the server. */
  readonly wouldStart: boolean;
}

export function explain(facts: ExplainFacts): Explanation {
  const { definition, principal, tool, row, denial, isListed, pin } = facts;
  const call = forecast(facts);
  const isUnknown = tool !== undefined && isListed === false;
  return {
    server: definition.name,
    tool,
    principal: { id: principal.id, role: principal.role },
    visible: denial === undefined && !isUnknown,
    rule: denial?.message ?? (isUnknown ? 'the server lists no such tool' : ruleFor(facts)),
    state: {
      state: row.state,
      since: row.since,
      forMs: row.forMs,
      nextProbeAt: row.nextProbeAt,
      nextProbeInMs: row.nextProbeInMs,
      lastError: row.lastError,
    },
    breaker: {
      circuit: row.circuit,
      failures: row.consecutiveFailures,
      threshold: definition.breaker.threshold,
      retryAfterMs: facts.breakerRetryAfterMs,
    },
    cache: { policy: definition.cache, entries: facts.cacheEntries },
    budget: facts.budget,
    pin: pin && {
      status: pin.status,
      approvedHash: pin.record?.approved?.hash,
      listedHash: pin.record?.pending?.hash ?? pin.record?.approved?.hash,
      blocks: pinRefusal(pin.status, definition.pins) !== undefined,
    },
    call,
    wouldStart: call.outcome === 'starts' || call.outcome === 'tries',
  };
}

const ruleFor = ({ principal: { id, role }, isListed, tool }: ExplainFacts): string => {
  const whom =
    role === undefined
      ? `${id === embedder.id ? 'the operator is under no role' : 'callers without a role may use it'}`
      : `a rule of role '${role}' allows it`;
  return tool !== undefined && isListed === undefined
    ? `${whom}, if the server has it: its tools are not known yet`
    : whom;
};

/** In the order in which a call passes: rules, pins, budget, throttle, breaker, server. */
function forecast(facts: ExplainFacts): CallForecast {
  const { denial, pin, definition, budget, row, refusal, breakerRetryAfterMs, wakeAfterMs } = facts;
  if (denial) return refused(denial.code, denial.message, denial.hint);
  const pinned = pin && pinRefusal(pin.status, definition.pins);
  if (pinned)
    return refused(
      'schema_changed',
      `its definition is ${pinned} and nobody approved it`,
      'compare it, then approve it',
    );
  if (budget && budget.left <= 0)
    return refused('budget_exceeded', 'no call is left in this window', 'wait for the next one', budget.resetsInMs);
  if (row.throttledForMs !== undefined)
    return refused('overloaded', 'it asked for fewer requests', 'call it less often', row.throttledForMs);
  // A half-open breaker admits a few calls at a time; one that is full says when it admits more.
  if (row.circuit === 'open' || (row.circuit === 'half_open' && (breakerRetryAfterMs ?? 0) > 0))
    return refused('circuit_open', 'calls failed in a row', 'wait for the next try', breakerRetryAfterMs);
  // A parked server is tried by the first call that comes after a while.
  if (row.state === 'parked' && row.forMs >= wakeAfterMs) return { outcome: 'tries' };
  if (refusal) return refused(refusal.code, refusal.message, refusal.hint, refusal.details.retryAfterMs);
  if (row.state === 'registered') return { outcome: 'starts' };
  return { outcome: row.active ? 'passes' : 'waits' };
}

const refused = (
  code: string,
  reason: string,
  hint: string | undefined,
  retryAfterMs: number | undefined = undefined,
): CallForecast => ({ outcome: 'refused', code, reason, hint, retryAfterMs });
