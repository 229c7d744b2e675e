/**
 * Explains what a principal sees of a server or tool, and how a call would end now. Charges and starts nothing.
 * Not here: printing (cli/why.ts), the decisions of the stages (policy/).
 */
import { renamed } from '../config/tool-rules.js';
import { didYouMean } from '../kernel/nearest-name.js';
import { quoted } from '../kernel/shell-word.js';
import { denial } from '../policy/allowlist.js';
import { embedder, type Principal } from '../policy/operation.js';
import type { PinStatus } from '../policy/pin-records.js';
import { pinRefusal } from '../policy/pin-stage.js';
import type { BudgetLeft } from '../policy/rate-limit.js';
import { defaultPlan } from '../supervisor/restart-plan.js';
import type { HostParts } from './host-parts.js';
import { type StatusRow, statusRow } from './status.js';

/** First outcome that a call would have, in the order of the stages. */
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
  /** Name under which clients see the tool; undefined unless `tools.rename` changes it. */
  readonly shownAs: string | undefined;
  readonly visible: boolean;
  readonly rule: string;
  readonly state: Pick<
    StatusRow,
    'state' | 'since' | 'forMs' | 'nextProbeAt' | 'nextProbeInMs' | 'lastError' | 'toolsError' | 'problem'
  >;
  readonly auth: StatusRow['auth'];
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
  /** Members of the tool's definition that clients refuse: Hostler repairs them in lists, or leaves the tool out. */
  readonly repair: { readonly fields: readonly string[]; readonly isLeftOut: boolean } | undefined;
  readonly call: CallForecast;
  readonly wouldStart: boolean;
}

export type ExplainFacts = ReturnType<typeof gatherFacts>;

/** Current facts about a server or one of its tools. */
export function gatherFacts(
  { clock, servers, rules, pins, cache, budgets, listings, statusSources }: HostParts,
  server: string,
  tool: string | undefined,
  principal: Principal,
) {
  const managed = servers.get(server);
  const row = statusRow(server, statusSources);
  const action = tool === undefined ? 'list' : 'call';
  const isKnown = managed.tools.length > 0 || row.active;
  const nowMs = clock.nowMs();
  const { opensAgainAtMs } = managed.circuitStatus(nowMs);
  return {
    definition: managed.definition,
    principal,
    tool,
    /** Undefined: the tools of the server are unknown. */
    isListed: isKnown ? managed.tools.some(({ key }) => key === tool) : undefined,
    toolNames: managed.tools.map(({ key }) => key),
    denial: denial(() => rules.guards, { principal, server, tool, action }),
    row,
    breakerRetryAfterMs: opensAgainAtMs === undefined ? undefined : Math.max(0, Math.ceil(opensAgainAtMs - nowMs)),
    cacheEntries: cache.entriesOf(server, tool),
    budget: budgets.leftOf(principal),
    pin: tool === undefined ? undefined : { status: pins.statusOf(server, tool), record: pins.recordOf(server, tool) },
    fault: tool === undefined ? undefined : listings.faultOf(server, tool),
    refusal: managed.supervisor.refusal(),
    /** Time after which a call may try a parked server. */
    wakeAfterMs: defaultPlan.wakeAfterMs,
  };
}

export function explain(facts: ExplainFacts): Explanation {
  const { definition, principal, tool, row, denial, isListed, pin, fault } = facts;
  const call = forecast(facts);
  const isUnknown = tool !== undefined && isListed === false;
  const isLeftOut = fault !== undefined && fault.item === undefined;
  const shownAs = tool === undefined ? undefined : renamed(definition.tools, tool);
  return {
    server: definition.name,
    tool,
    principal: { id: principal.id, role: principal.role },
    shownAs: shownAs === tool ? undefined : shownAs,
    visible: denial === undefined && !isUnknown && !isLeftOut,
    rule: denial?.message ?? (isUnknown ? 'the server lists no such tool' : isLeftOut ? leftOut : ruleFor(facts)),
    state: {
      state: row.state,
      problem: row.problem,
      since: row.since,
      forMs: row.forMs,
      nextProbeAt: row.nextProbeAt,
      nextProbeInMs: row.nextProbeInMs,
      lastError: row.lastError,
      toolsError: row.toolsError,
    },
    auth: row.auth,
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
    repair: fault && { fields: fault.fields, isLeftOut },
    call,
    wouldStart: call.outcome === 'starts' || call.outcome === 'tries',
  };
}

const leftOut = 'clients refuse its definition, so it is left out of lists';

const ruleFor = ({ principal: { id, role }, isListed, tool }: ExplainFacts): string => {
  const withoutRole = id === embedder.id ? 'no role applies to the operator' : 'callers without a role may use it';
  const rule = role === undefined ? withoutRole : `a rule of role '${role}' allows it`;
  return tool !== undefined && isListed === undefined
    ? `${rule}, if the server has it: its tools are not known yet`
    : rule;
};

function forecast(facts: ExplainFacts): CallForecast {
  const { denial, pin, definition, budget, row, refusal, breakerRetryAfterMs, wakeAfterMs } = facts;
  if (denial) return refused(denial.code, denial.message, denial.hint);
  if (facts.tool !== undefined && facts.isListed === false && pin?.record === undefined)
    return refused('tool_not_found', 'the server lists no such tool', unknownToolHint(facts.tool, facts));
  const pinned = pin && pinRefusal(pin.status, definition.pins);
  if (pinned)
    return refused(
      'schema_changed',
      `its definition is ${pinned} and not approved`,
      `compare and approve it: hostler approve ${quoted(`${definition.name}/${facts.tool}`)}`,
    );
  if (budget && budget.left <= 0)
    return refused('budget_exceeded', 'no call is left in this window', 'wait for the next one', budget.resetsInMs);
  if (row.throttledForMs !== undefined)
    return refused('overloaded', 'the server asked for fewer requests', 'call it less often', row.throttledForMs);
  // A half-open breaker admits a few trial calls. While all of them run, it reports when the next one may be sent.
  if (row.circuit === 'open' || (row.circuit === 'half_open' && (breakerRetryAfterMs ?? 0) > 0))
    return refused('circuit_open', 'calls failed in a row', 'wait for the next trial call', breakerRetryAfterMs);
  // A server that was parked for `wakeAfterMs` is tried by the next call.
  if (row.state === 'parked' && row.forMs >= wakeAfterMs) return { outcome: 'tries' };
  if (refusal) return refused(refusal.code, refusal.message, refusal.hint, refusal.details.retryAfterMs);
  if (row.state === 'registered') return { outcome: 'starts' };
  return { outcome: row.active ? 'passes' : 'waits' };
}

const unknownToolHint = (tool: string, { toolNames, definition: { name } }: ExplainFacts): string =>
  `${didYouMean(tool, toolNames)}hostler tools ${name} lists its tools`;

const refused = (
  code: string,
  reason: string,
  hint: string | undefined,
  retryAfterMs: number | undefined = undefined,
): CallForecast => ({ outcome: 'refused', code, reason, hint, retryAfterMs });
