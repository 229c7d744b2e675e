/**
 * A host with servers that do not want to go is closed. How long it takes, what is left and what is written last is seen
 * from outside.
 */
import { expect, test } from 'vitest';
import { runInNamespace } from './in-namespace.js';

interface Figures {
  readonly obedient: Stop;
  readonly all: Stop;
}
interface Stop {
  readonly tookMs: number;
  readonly processesBefore: number;
}

test('S7 ordered stop of a host: 50 servers of five kinds within 5.5 s, 0 left, the journal last', {
  timeout: 120_000,
}, async () => {
  const { obedient, all } = await runInNamespace<Figures>('S7', './host-stop-driver.mjs', 50);
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
  expect(obedient).toMatchObject(orderly(10));
  expect(all).toMatchObject(orderly(50));
  // One process each, ten of them with a child of their own, and the watch.
  expect(all.processesBefore).toBe(61);
  expect(obedient.tookMs).toBeLessThanOrEqual(300);
  expect(all.tookMs).toBeLessThanOrEqual(5_500);
});
