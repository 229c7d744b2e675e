/** Rounds of a journal whose process is killed while it runs calls, over one folder, and what was seen of them. */
import { runStore, type Said, startStore } from './store-process.js';

export interface CallReport {
  readonly rounds: number;
  readonly executions: number;
  /** Keys that were run by more than one process, or twice by one. */
  readonly executedTwice: number;
  /** Keys whose reply was promised to be kept, and was not given back as it was. */
  readonly lostReplies: number;
  /** Answers to the same key with other arguments that were anything but a conflict. */
  readonly otherAccepted: number;
  readonly lost: number;
  readonly done: number;
}

const dayMs = 24 * 3_600_000;

/**
 * Every round asks for all keys of all rounds so far, and a few more, at a time of its own between one second and 23 hours after
 * the first; all but the last are killed when they have said some.
 */
export async function callRounds(folder: string, rounds: number, keysPerRound: number): Promise<CallReport> {
  const baseMs = Date.parse('2026-03-01T00:00:00Z');
  const executions: string[] = [];
  const finished = new Set<string>();
  let [lostReplies, otherAccepted, lost, done] = [0, 0, 0, 0];
  const count = (said: Said) => {
    executions.push(...said.of('E'));
    for (const answer of said.of('C')) {
      const [key, kind] = answer.split(' ') as [string, string];
      if (kind.startsWith('other:')) {
        if (kind !== 'other:conflict') otherAccepted += 1;
        continue;
      }
      if (kind === 'lost') lost += 1;
      if (kind.startsWith('done:')) done += 1;
      if (finished.has(key) && kind !== `done:reply-of-${key}`) lostReplies += 1;
    }
    for (const key of said.of('F')) finished.add(key);
  };
  for (let round = 0; round < rounds; round++) {
    const keys = keysPerRound * (round + 1);
    const atMs = baseMs + 1_000 + Math.floor((round / rounds) * (dayMs - 3_600_000));
    const store = startStore(folder, ['call', keys, atMs, baseMs]);
    await store.reached(1 + Math.floor(Math.random() * 4 * keysPerRound));
    store.child.kill('SIGKILL');
    count(await store.ended);
  }
  count(await runStore(folder, ['call', keysPerRound * rounds, baseMs + dayMs - 3_600_000, baseMs]));
  const executedTwice = executions.length - new Set(executions).size;
  return { rounds, executions: executions.length, executedTwice, lostReplies, otherAccepted, lost, done };
}
