/**
 * Liveness: once the world is healthy, each server that is called answers within 60 s when it had failed by connection, and
 * within the breaker's own wait plus one trial when calls had timed out; a parked server counts from the first call after 5 s
 * parked. `status` never says ready/closed while no request can be sent.
 */
import type { StatusRow } from '../../src/host/status.js';
import { type Asked, type Member, numberOf, type SimulatedWorld, slackMs } from './simulated-world.js';

const connectionMs = 60_000;
/** Our own check of a session, and one call that is answered at once. */
const trialMs = 6_000;
/** Between two calls of a server that is wanted. */
const everyMs = 1_000;
/** For each of them: longer than it takes to find out that nothing can be sent. */
const wantedMs = 20_000;
const parkedCallMs = 5_000;
/** The longest pause after 429 without Retry-After. */
const shortPauseMs = 30_000;
/** What was under way when the world was mended is over by then, and a process that hangs for ever was replaced. */
const aftermathMsMax = 600_000;

interface Recovery {
  readonly member: Member;
  readonly startedAtMs: number;
  /** The number of its first call: earlier ones are of the time before. */
  readonly firstCall: number;
  readonly calls: Asked[];
  /** From here on nothing of the time before is under way; undefined while something is. */
  healthyAtMs: number | undefined;
  /** When its first refusal in the healthy world told callers to come back, where it may stay away for so long. */
  toldUntilMs: number | undefined;
}

/** Calls every server again and again until it answers, or has had its time. Returns how long each took. */
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

/** Whether something is wrong, which is noted. */
function isGivenUp(world: SimulatedWorld, recovery: Recovery, row: StatusRow | undefined): boolean {
  const { member, calls, startedAtMs } = recovery;
  const nowMs = world.clock.nowMs();
  if (hasAftermath(world, recovery)) {
    recovery.healthyAtMs = undefined;
    recovery.toldUntilMs = undefined;
    if (nowMs <= startedAtMs + aftermathMsMax) return false;
    world.wrong.push(
      `${member.name} still suffers from what was before: ${row?.state}/${row?.circuit}, ${last(calls)}`,
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

/** Something of the time before is still under way: a call, what a server does for one, or a reply that never comes. */
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

/** Where the contract lets a server stay away for longer than after a lost connection. */
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
    // A pause asked for by a refused `initialize` is short, whatever the server asked for.
    const pausedUntilMs = member.upstream.kind === 'http' ? member.upstream.pausedUntilMs : 0;
    return Math.min(comeBackAtMs, Math.max(pausedUntilMs, nowMs + shortPauseMs)) + connectionMs;
  }
  if (row?.state !== 'parked') return undefined;
  return nowMs + (member.isWakeSpent ? (row.nextProbeInMs ?? 0) : parkedCallMs) + connectionMs;
}

/** A call could not be sent in the healthy world, and nothing in the status says so. */
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
