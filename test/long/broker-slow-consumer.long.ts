/**
 * B8 among many: of a thousand and one workers, one stops reading its replies. The others are compared with the workers of a second
 * host at the same time, where that worker continues to read.
 */
import { expect, test } from 'vitest';
import { runInNamespace } from '../reliability/in-namespace.js';

const workers = Number(process.env.SLOW_WORKERS ?? 1_000);
/** A worker that reads nothing is cut after this time. What the kernel takes first counts as read. */
const slowMs = 60_000;
const lateMsMax = 15_000;
/** There is no close frame for a peer that does not read. */
const noCloseFrame = 1_006;

interface Figures {
  readonly ratio: number;
  readonly cutAfterMs: number;
  readonly unread: { readonly it: { readonly calls: number } };
}

test(`B8 one of ${workers} workers stops reading: it is disconnected, keeps its replies, and the others are served`, async () => {
  const figures = await runInNamespace<Figures>('B8', './broker-slow-driver.mjs', workers);
  expect(figures).toMatchObject({ workers, failures: 0, missing: 0, isControlClosed: false, exits: [0, 0] });
  expect(figures).toMatchObject({ cutFor: 'slow_consumer', closedWith: noCloseFrame });
  expect(figures.cutAfterMs).toBeGreaterThanOrEqual(slowMs);
  expect(figures.cutAfterMs).toBeLessThanOrEqual(slowMs + lateMsMax);
  expect(figures.ratio).toBeLessThanOrEqual(1.5);
  expect(figures.unread.it.calls).toBeGreaterThan(workers);
});
