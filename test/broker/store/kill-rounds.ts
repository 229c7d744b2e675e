/** Rounds of a log whose process is killed while it works, over one folder, and what was seen of them. */
import { runLog, startLog, statesOf } from './log-process.js';

export interface KillReport {
  readonly receipts: number;
  readonly outcomes: number;
  /** Received or finished, not acknowledged, and not found as it was. */
  readonly lost: number;
  readonly problems: number;
}

/** Each process is killed after some more than `lines` lines, at a moment that nobody chose. */
export async function killRounds(folder: string, rounds: number, lines: number): Promise<KillReport> {
  let [receipts, outcomes, lost, problems] = [0, 0, 0, 0];
  for (let round = 0; round < rounds; round++) {
    const log = startLog(folder, ['work', 8]);
    await log.reached(lines + Math.floor(Math.random() * lines));
    log.child.kill('SIGKILL');
    const said = await log.ended;
    // Past 256 calls that are not acknowledged nothing is refused here: the bounds are the service's to ask for.
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
  /** Finished, and then not found as done. */
  readonly lostOutcomes: number;
  readonly foreign: number;
}

/** Callers' keys over kills, up to 23 hours later by the wall clock. */
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
