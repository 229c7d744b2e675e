/**
 * B8 among many: one worker of a thousand and one stops reading what is sent to it. The others are compared with those of a second
 * broker at the same time, where the one goes on reading.
 */
import { expect, test } from 'vitest';
import { runInNamespace } from '../reliability/in-namespace.js';

const workers = Number(process.env.SLOW_WORKERS ?? 1_000);
const bufferBytesMax = 4 * 1024 * 1024;
const slowMs = 10_000;
/** For a timer and a process that have others beside them. */
const lateMsMax = 2_000;

interface Figures {
  readonly ratio: number;
  readonly bufferedMax: number;
  readonly cutAfterFullMs: number;
  readonly sent: number;
  readonly heldAtCut: number;
  readonly unread: { readonly it: { readonly calls: number } };
}

test(`B8 one of ${workers} workers stops reading: it is cut when its time is over, keeps its messages, and the others hardly notice`, async () => {
  const figures = await runInNamespace<Figures>('B8', './broker-slow-driver.mjs', workers);
  // All but the one that was cut, with the host and whoever sends on its behalf.
  expect(figures).toMatchObject({
    workers,
    failures: 0,
    missing: 0,
    deadLetters: 0,
    isControlCut: false,
    cutMailbox: 'slow',
    connections: workers + 2,
  });
  expect(figures.bufferedMax).toBeLessThanOrEqual(bufferBytesMax);
  expect(figures.cutAfterFullMs).toBeGreaterThanOrEqual(slowMs - 100);
  expect(figures.cutAfterFullMs).toBeLessThanOrEqual(slowMs + lateMsMax);
  expect(figures.ratio).toBeLessThanOrEqual(1.5);
  // There was something to see.
  expect(figures.bufferedMax).toBeGreaterThan(bufferBytesMax / 2);
  expect(figures.heldAtCut).toBeGreaterThan(64);
  expect(figures.unread.it.calls).toBeGreaterThan(workers);
});
