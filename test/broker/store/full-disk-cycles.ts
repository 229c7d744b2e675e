/**
 * A store on a disk of 64 MiB that others fill and free again, and what was seen of it.
 * Not here: how often (full-disk.test.ts, test/long/broker-disk.long.ts).
 */
import { execFileSync } from 'node:child_process';
import { closeSync, openSync, rmSync, writeSync } from 'node:fs';
import path from 'node:path';
import { type BrokerStore, openBrokerStore } from '../../../src/broker/store/broker-store.js';
import { isHostError } from '../../../src/kernel/errors.js';
import { FakeClock } from '../../../src/kernel/fake-clock.js';
import { makeFolder } from './store-process.js';

export interface FullReport {
  cycles: number;
  /** New mail and new keys that were refused, and those that were refused with anything but `insufficient_storage`. */
  refused: number;
  refusedOtherwise: number;
  /** Calls whose reply was kept while the disk was full. */
  finishedWhileFull: number;
  /** The same, when others had taken the reserve as well: kept, or refused and kept later. */
  finishedLater: number;
  /** Cycles after which it was not open one second after there was room. */
  notOpenAgain: number;
  hasFailed: boolean;
  lost: number;
  revenants: number;
  lostReplies: number;
}

const keysPerCycle = 5;
const reply = (key: string) => Buffer.alloc(20_000, key);

export async function fillCycles(cycles: number): Promise<FullReport> {
  const { folder: disk, remove } = makeFolder('full');
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64m', 'tmpfs', disk]);
  const folder = path.join(disk, 'store');
  const clock = new FakeClock();
  const report: FullReport = {
    ...{ cycles, refused: 0, refusedOtherwise: 0, finishedWhileFull: 0, finishedLater: 0, notOpenAgain: 0 },
    ...{ hasFailed: false, lost: 0, revenants: 0, lostReplies: 0 },
  };
  try {
    const store = await openBrokerStore({ folder, clock });
    const held = new Map<number, string>();
    const gone = new Set<number>();
    for (let cycle = 0; cycle < cycles; cycle++) await fillCycle(store, disk, clock, cycle, held, gone, report);
    report.hasFailed = store.mail.state === 'failed';
    await store.close();

    const again = await openBrokerStore({ folder, clock });
    const found = await again.mail.read('host', 0, { count: 1e6, bytes: 1e9 });
    const ids = new Map(found.map(({ seq, id }) => [seq, id]));
    for (const [seq, id] of held) if (ids.get(seq) !== id) report.lost += 1;
    for (const seq of ids.keys()) if (gone.has(seq)) report.revenants += 1;
    for (let cycle = 0; cycle < cycles; cycle++) {
      for (const key of keysOf(cycle)) {
        const answer = await again.journal.claim(claimOf(key));
        if (answer.kind !== 'done' || !answer.reply.equals(reply(key))) report.lostReplies += 1;
      }
    }
    await again.close();
    return report;
  } finally {
    execFileSync('umount', ['-l', disk]);
    remove();
  }
}

async function fillCycle(
  { mail, journal }: BrokerStore,
  disk: string,
  clock: FakeClock,
  cycle: number,
  held: Map<number, string>,
  gone: Set<number>,
  report: FullReport,
): Promise<void> {
  const refused = (error: unknown) => {
    report.refused += 1;
    if (!isHostError(error) || error.code !== 'insufficient_storage' || !error.details.retryAfterMs)
      report.refusedOtherwise += 1;
  };
  const put = async (id: string) => {
    const { seq } = await mail.put({ ...letter, id, body: Buffer.alloc(20_000, id) });
    held.set(seq, id);
  };
  for (const key of keysOf(cycle)) await journal.claim(claimOf(key));
  await put(`c${cycle}-early`);
  fill(disk);
  const isOpen = () => mail.state === 'open';
  for (let at = 0; isOpen(); at++)
    await Promise.all([0, 1, 2, 3].map((lane) => put(`c${cycle}-${at}-${lane}`).catch(refused)));
  await put(`c${cycle}-late`).catch(refused);
  await journal.claim(claimOf(`c${cycle}-new`)).catch(refused);

  // Every other time somebody takes what we gave up, before we come to use it.
  if (cycle % 2 === 1) fill(disk);
  const later: string[] = [];
  for (const key of keysOf(cycle)) {
    await journal.finish('w1', key, reply(key)).then(
      () => {
        if (cycle % 2 === 0) report.finishedWhileFull += 1;
      },
      (error: unknown) => {
        refused(error);
        later.push(key);
      },
    );
  }
  for (const seq of [...held.keys()].slice(0, -3)) {
    mail.remove(seq);
    held.delete(seq);
    gone.add(seq);
  }
  await mail.flush().catch(refused);

  rmSync(path.join(disk, 'others'));
  clock.advance(1_000);
  await mail.sizes();
  if (!isOpen()) report.notOpenAgain += 1;
  for (const key of later) {
    await journal.finish('w1', key, reply(key));
    report.finishedLater += 1;
  }
  await put(`c${cycle}-after`);
}

const letter = {
  ...{ to: 'host', from: { mailbox: 'w1', role: undefined }, kind: 'request' as const },
  ...{ sentAtMs: 0, expiresAtMs: undefined },
};

const keysOf = (cycle: number) => Array.from({ length: keysPerCycle }, (_, at) => `c${cycle}-k${at}`);

const claimOf = (key: string) => ({
  ...{ mailbox: 'w1', key, hash: 'h', isRepeatable: false },
  rememberUntil: new Date('2026-01-02T00:00:00Z'),
});

/** What others write, to the last byte. */
function fill(disk: string): void {
  const descriptor = openSync(path.join(disk, 'others'), 'a');
  try {
    for (const bytes of [1024 * 1024, 4096]) {
      const chunk = Buffer.alloc(bytes, 1);
      try {
        while (writeSync(descriptor, chunk) === bytes);
      } catch {
        // Full.
      }
    }
  } finally {
    closeSync(descriptor);
  }
}
