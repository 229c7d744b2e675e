/**
 * Looks at everything that has a say about a server, or one tool of it, as it is now.
 * Not here: what follows from it (explain.ts).
 * Invariant: nothing is charged, started or told.
 */
import { denial } from '../policy/allowlist.js';
import type { Principal } from '../policy/call.js';
import { defaultPlan } from '../supervisor/restart-plan.js';
import { type Explanation, explain } from './explain.js';
import type { HostParts } from './host-parts.js';
import type { ManagedServer } from './managed-server.js';
import { type StatusRow, type StatusSources, statusRows } from './status.js';

export type ExplainSources = Pick<
  HostParts,
  'clock' | 'servers' | 'rules' | 'pins' | 'cache' | 'budgets' | 'statusSources'
>;

export function explainNow(
  { clock, servers, rules, pins, cache, budgets, statusSources }: ExplainSources,
  server: string,
  tool: string | undefined,
  principal: Principal,
): Explanation {
  const managed = servers.get(server);
  const { definition, supervisor } = managed;
  const row = statusRows({ ...statusSources, registry: only(server, statusSources.registry) })[0] as StatusRow;
  const action = tool === undefined ? 'list' : 'call';
  const isKnown = managed.tools.length > 0 || row.active;
  return explain({
    definition,
    principal,
    tool,
    isListed: isKnown ? managed.tools.some(({ key }) => key === tool) : undefined,
    denial: denial(() => rules.guards, { principal, server, tool, action }),
    row,
    breakerRetryAfterMs: breakerWait(managed, clock.nowMs()),
    cacheEntries: cache.entriesOf(server, tool),
    budget: budgets.leftOf(principal),
    pin: tool === undefined ? undefined : { status: pins.statusOf(server, tool), record: pins.recordOf(server, tool) },
    refusal: supervisor.refusal(),
    wakeAfterMs: defaultPlan.wakeAfterMs,
  });
}

/** The same registry with one server in it. */
const only = (server: string, registry: StatusSources['registry']): StatusSources['registry'] => ({
  snapshot: () => registry.snapshot().filter(({ name }) => name === server),
  held: (name) => registry.held(name),
});

function breakerWait(managed: ManagedServer, nowMs: number): number | undefined {
  const atMs = managed.circuitNow(nowMs).opensAgainAtMs;
  return atMs === undefined ? undefined : Math.max(0, Math.ceil(atMs - nowMs));
}
