/**
 * A host with servers that ignore the stop is closed. The time, the remaining processes and the last write are observed
 * from outside.
 */
import { expect, test } from 'vitest';
import { timeLimitMs } from '../tier.js';
import { runInNamespace } from './in-namespace.js';

const count = Number(process.env.SERVERS ?? 20);

interface Figures {
  readonly obedient: Stop;
  readonly all: Stop;
}
interface Stop {
  readonly tookMs: number;
  readonly processesBefore: number;
}

test(`S7 ordered stop of a host: ${count} servers of five kinds, 0 left, the journal removed last`, {
  timeout: 120_000,
}, async () => {
  const { obedient, all } = await runInNamespace<Figures>('S7', './host-stop-driver.mjs', count);
  const orderly = (servers: number) => ({
    servers,
    ready: servers,
    stoppedBeforeJournal: servers,
    last: 'journal',
    journalsLeft: 0,
    toolsKept: servers,
    integrity: 'ok',
    processesLeft: 0,
    problems: [],
  });
  expect(obedient).toMatchObject(orderly(count / 5));
  expect(all).toMatchObject(orderly(count));
  // One process for each server, a child for each fifth server, and the death watch.
  expect(all.processesBefore).toBe(count + count / 5 + 1);
  expect(obedient.tookMs).toBeLessThanOrEqual(timeLimitMs(300));
  expect(all.tookMs).toBeLessThanOrEqual(timeLimitMs(5_500));
});
