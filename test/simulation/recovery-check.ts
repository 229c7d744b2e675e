/**
 * Liveness: after all faults have ended, each called server answers within 60 s if its connections had failed, and within the open
 * time of its breaker plus one trial if calls had timed out. For a parked server the time counts from the first call after 5 s
 * parked, or from its next probe; a server over HTTP that was parked because it could not be reached or answered 429 has no such extra time.
 * `status` never says ready/closed while no request can be sent.
 */
import type { StatusRow } from '../../src/host/status.js';
import { type Asked, type Member, numberOf, type SimulatedWorld, slackMs } from './simulated-world.js';

const connectionMs = 60_000;
/** The host's own check of a session, and one call that is answered at once. */
const trialMs = 6_000;
/** Time between two calls of one server. */
const everyMs = 1_000;
/** Deadline of these calls: longer than the detection of a stalled channel takes. */
const wantedMs = 20_000;
const parkedCallMs = 5_000;
/** The longest pause after 429 without Retry-After. */
const shortPauseMs = 30_000;
const lossCodes: ReadonlySet<string | undefined> = new Set(['connect_failed', 'transport', 'overloaded']);
/** By then all earlier work has ended, and hung processes were replaced. */
const aftermathMsMax = 600_000;

interface Recovery {
  readonly member: Member;
  readonly startedAtMs: number;
  /** Number of its first call after the faults ended. */
  readonly firstCall: number;
  readonly calls: Asked[];
  /** Time at which all earlier work had ended; undefined before that. */
  healthyAtMs: number | undefined;
  /** The time that its first refusal after the faults named for a retry, if such a long pause is allowed. */
  toldUntilMs: number | undefined;
}

/** Calls every server repeatedly until it answers or its time is over. Returns the time that each needed. */
export async function untilServed(world: SimulatedWorld): Promise<number[]> {
  const nowMs = world.clock.nowMs();
  const begin = { startedAtMs: nowMs, firstCall: world.asked.length, healthyAtMs: undefined, toldUntilMs: undefined };
  const servedInMs: number[] = [];
  let open: Recovery[] = world.members.map((member) => ({ ...begin, member, calls: [] }));
  while (open.length > 0) {
    for (const { member, calls } of open) calls.push(world.call(member, wantedMs, 0));
    await world.advance(everyMs);
    const rows = world.status();
    open = open.filter((recovery) => {
      const answered = recovery.calls.find(({ outcomes }) => outcomes[0] === 'answered');
      if (answered) servedInMs.push(Math.max(0, answered.settledAtMs - (recovery.healthyAtMs ?? nowMs)));
      return !answered && !isGivenUp(world, recovery, rows.get(recovery.member.name));
    });
  }
  return servedInMs;
}

/** Returns true if the server is too late, and records that. */
function isGivenUp(world: SimulatedWorld, recovery: Recovery, row: StatusRow | undefined): boolean {
  const { member, calls, startedAtMs } = recovery;
  const nowMs = world.clock.nowMs();
  if (hasAftermath(world, recovery)) {
    recovery.healthyAtMs = undefined;
    recovery.toldUntilMs = undefined;
    if (nowMs <= startedAtMs + aftermathMsMax) return false;
    world.wrong.push(
      `${member.name} has not recovered from an earlier fault: ${row?.state}/${row?.circuit}, ${last(calls)}`,
    );
    return true;
  }
  recovery.healthyAtMs ??= nowMs;
  const { healthyAtMs } = recovery;
  recovery.toldUntilMs ??= toldUntilMs(nowMs, healthyAtMs, recovery, row);
  const limitMs = Math.max(healthyAtMs + connectionMs, recovery.toldUntilMs ?? 0);
  if (nowMs <= limitMs + slackMs) return isStatusWrong(world, healthyAtMs, recovery, row);
  const sinceMs = nowMs - healthyAtMs;
  const now = `${row?.state}/${row?.circuit}, ${last(calls)}`;
  world.wrong.push(`${member.name} has not answered ${sinceMs} ms after it was healthy: ${now}`);
  return true;
}

const last = (calls: readonly Asked[]): string | undefined =>
  calls.findLast(({ outcomes }) => outcomes.length > 0)?.outcomes[0];

/** True while earlier work is not over: a call, the work of a server for a call, or a reply that never comes. */
function hasAftermath({ asked }: SimulatedWorld, { member, startedAtMs, firstCall }: Recovery): boolean {
  const { name, upstream } = member;
  if (upstream.hung > 0) return true;
  for (const { nonce, takenAtMs } of upstream.mcp.jobs)
    if (nonce === undefined ? takenAtMs <= startedAtMs : numberOf(nonce) < firstCall) return true;
  for (let n = 0; n < firstCall; n++) {
    const call = asked[n] as Asked;
    if (call.server === name && call.outcomes.length === 0) return true;
  }
  return false;
}

/** Returns the time for states in which the contract allows a longer absence than after a lost connection. */
function toldUntilMs(
  nowMs: number,
  healthyAtMs: number,
  { member, calls }: Recovery,
  row: StatusRow | undefined,
): number | undefined {
  const told = calls.findLast(({ madeAtMs, outcomes }) => outcomes.length > 0 && madeAtMs >= healthyAtMs);
  if (!told?.error) return undefined;
  const { code, details } = told.error;
  const comeBackAtMs = told.settledAtMs + (details.retryAfterMs ?? 0);
  if (code === 'circuit_open' && member.hasTimedOut) return comeBackAtMs + trialMs;
  if (code === 'overloaded') {
    // A pause after a refused `initialize` is short, even if the server asked for more.
    const pausedUntilMs = member.upstream.kind === 'http' ? member.upstream.pausedUntilMs : 0;
    return Math.min(comeBackAtMs, Math.max(pausedUntilMs, nowMs + shortPauseMs)) + connectionMs;
  }
  // The row is that of the shared server, and the instance is parked.
  if (code === 'server_parked' && member.isPerClient) return comeBackAtMs + connectionMs;
  if (row?.state !== 'parked') return undefined;
  // Over HTTP such a server is probed every few seconds.
  if (member.upstream.kind === 'http' && lossCodes.has(row.lastError?.code)) return undefined;
  return nowMs + (member.isWakeSpent ? (row.nextProbeInMs ?? 0) : parkedCallMs) + connectionMs;
}

/** True if a call could not be sent after the faults ended although the status shows no problem. */
function isStatusWrong(
  { wrong }: SimulatedWorld,
  healthyAtMs: number,
  { member, calls }: Recovery,
  row: StatusRow | undefined,
): boolean {
  const unsent = calls.find(
    ({ madeAtMs, error }) =>
      madeAtMs >= healthyAtMs && error?.code === 'timeout' && error.details.execution === 'not_executed',
  );
  if (!unsent || row?.state !== 'ready' || row.circuit !== 'closed') return false;
  wrong.push(`${member.name}: status says ready/closed, and ${unsent.nonce} could not be sent in ${wantedMs} ms`);
  return true;
}
