/** Kills processes of a log while they work, one after the other in one folder, and reports the observed effects. */
import { runLog, startLog, statesOf } from './log-process.js';

export interface KillReport {
  readonly receipts: number;
  readonly outcomes: number;
  /** Number of received or finished rows, not acknowledged, that were not found in the same state. */
  readonly lost: number;
  readonly problems: number;
}

/** Kills each process at a random moment after it has printed `lines` lines. */
export async function killRounds(folder: string, rounds: number, lines: number): Promise<KillReport> {
  let [receipts, outcomes, lost, problems] = [0, 0, 0, 0];
  for (let round = 0; round < rounds; round++) {
    const log = startLog(folder, ['work', 8]);
    await log.reached(lines + Math.floor(Math.random() * lines));
    log.child.kill('SIGKILL');
    const said = await log.ended;
    // More than 256 unacknowledged calls are accepted here, because the service checks the bounds, not the log.
    problems += said.of('P').length + said.of('X').length;
    const [received, finished, acked] = [said.of('R'), new Set(said.of('F')), new Set(said.of('t'))];
    receipts += received.length;
    outcomes += finished.size;
    const states = await statesOf(folder, received);
    for (const key of received) {
      const state = states.get(key);
      if (acked.has(key)) lost += state === 'foreign' ? 1 : 0;
      else if (finished.has(key)) lost += state === 'done' ? 0 : 1;
      else lost += state === 'running' || state === 'done' ? 0 : 1;
    }
  }
  return { receipts, outcomes, lost, problems };
}

export interface CallReport {
  readonly executed: number;
  readonly executedTwice: number;
  /** Number of finished calls that were not found as done. */
  readonly lostOutcomes: number;
  readonly foreign: number;
}

/** Calls with callers' keys over several kills, up to 23 hours later by the wall clock. */
export async function callRounds(folder: string, rounds: number, keysPerRound: number): Promise<CallReport> {
  const runs = new Map<string, number>();
  const finished = new Set<string>();
  const baseMs = Date.now();
  let [lostOutcomes, foreign] = [0, 0];
  for (let round = 0; round < rounds; round++) {
    const atMs = baseMs + Math.floor((round / rounds) * 23 * 3_600_000);
    const log = startLog(folder, ['call', (round + 1) * keysPerRound, atMs]);
    await log.reached(1 + Math.floor(Math.random() * 4 * keysPerRound));
    log.child.kill('SIGKILL');
    const said = await log.ended;
    for (const [key, state, whose] of said.of('C').map((line) => line.split(' ') as [string, string, string])) {
      if (finished.has(key) && state !== 'done') lostOutcomes += 1;
      if (whose !== 'own') foreign += 1;
    }
    for (const key of said.of('E')) runs.set(key, (runs.get(key) ?? 0) + 1);
    for (const key of said.of('F')) finished.add(key);
  }
  const last = await runLog(folder, ['call', rounds * keysPerRound, baseMs + 23 * 3_600_000]);
  const states = new Map(last.of('C').map((line) => line.split(' ') as [string, string]));
  for (const key of finished) if (states.get(key) !== 'done') lostOutcomes += 1;
  for (const key of last.of('E')) runs.set(key, (runs.get(key) ?? 0) + 1);
  const counts = [...runs.values()];
  return { executed: counts.length, executedTwice: counts.filter((times) => times > 1).length, lostOutcomes, foreign };
}
