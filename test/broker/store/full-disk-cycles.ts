/**
 * Runs a log on a disk of 64 MiB that other files fill and free again, and reports the observed effects. Not here: the number of
 * cycles (full-disk.test.ts, test/long/broker-disk.long.ts).
 */
import { execFileSync } from 'node:child_process';
import { closeSync, mkdirSync, openSync, readdirSync, rmSync, statSync, writeSync } from 'node:fs';
import path from 'node:path';
import type { CallLog } from '../../../src/broker/calls/call-log.js';
import { openSqliteCallLog } from '../../../src/broker/calls/sqlite/sqlite-call-log.js';
import { systemClock } from '../../../src/kernel/clock.js';
import { isHostError } from '../../../src/kernel/errors.js';
import { idOf, newCall, outcome } from '../../contract/broker/call-log-checks.js';
import { eventually } from '../../eventually.js';
import { makeFolder } from './log-process.js';

export interface FullReport {
  /** Number of refused new calls, and of those refused with another code than `disk_full`. */
  refused: number;
  refusedOtherwise: number;
  /** Outcomes that waited and were written when there was room. */
  written: number;
  notServedAgain: number;
  hasFailed: boolean;
  /** Outcomes that a later log does not find. */
  lost: number;
}

const keysPerCycle = 5;
const replyOf = (key: string) => Buffer.alloc(200_000, key);

/** Size of the blocks on the disk, not length of the files. */
export const usedBytes = (folder: string): number =>
  readdirSync(folder)
    .map((name) => statSync(path.join(folder, name), { throwIfNoEntry: false })?.blocks ?? 0)
    .reduce((sum, blocks) => sum + blocks * 512, 0);

export async function withSmallDisk(sizeMiB: number, use: (folder: string) => Promise<void>): Promise<void> {
  const { folder: disk, remove } = makeFolder('full');
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${sizeMiB}m`, 'tmpfs', disk]);
  try {
    const folder = path.join(disk, 'log');
    mkdirSync(folder, { mode: 0o700 });
    await use(folder);
  } finally {
    execFileSync('umount', ['-l', disk]);
    remove();
  }
}

export async function fillCycles(cycles: number): Promise<FullReport> {
  const report: FullReport = {
    ...{ refused: 0, refusedOtherwise: 0, written: 0, notServedAgain: 0, hasFailed: false, lost: 0 },
  };
  await withSmallDisk(64, async (folder) => {
    const onProblem = ({ details }: { details: { reason?: string } }) => {
      report.hasFailed ||= details.reason === 'store_failed';
    };
    const log = await openSqliteCallLog({ folder, clock: systemClock, onProblem });
    const countLost = async (from: CallLog, cycle: number) => {
      for (const key of keysOf(cycle)) if ((await from.find(idOf(key)))?.state !== 'done') report.lost += 1;
    };
    // The disk has room for the replies of a few cycles, so replies of earlier cycles are looked up and acknowledged.
    const kept = Math.min(cycles, 10);
    for (let cycle = 0; cycle < cycles; cycle++) {
      await fillCycle(log, folder, cycle, report);
      const old = cycle - kept;
      if (old < 0) continue;
      await countLost(log, old);
      for (const key of keysOf(old)) log.acknowledge(idOf(key));
    }
    await log.close();
    const again = await openSqliteCallLog({ folder, clock: systemClock, onProblem });
    for (let cycle = cycles - kept; cycle < cycles; cycle++) await countLost(again, cycle);
    await again.close();
  });
  return report;
}

async function fillCycle(log: CallLog, folder: string, cycle: number, report: FullReport): Promise<void> {
  const refused = (error: unknown) => {
    report.refused += 1;
    const isFull = isHostError(error) && error.code === 'overloaded' && error.details.reason === 'disk_full';
    if (!isFull || !error.details.retryAfterMs || error.details.execution !== 'not_executed')
      report.refusedOtherwise += 1;
  };
  for (const key of keysOf(cycle)) await log.receive(newCall(key));
  const others = path.join(folder, '..', 'others');
  fill(others);
  for (let at = 0; at < 3; at++) await log.receive(newCall(`c${cycle}-new${at}`)).then(() => {}, refused);
  // The outcomes of calls that run wait for room.
  const outcomes = keysOf(cycle).map(async (key) => {
    const row = await log.finish(idOf(key), log.owner, outcome(replyOf(key)));
    if (row?.state === 'done') report.written += 1;
  });
  if (log.refusal('w1', false) === undefined) report.refusedOtherwise += 1;
  rmSync(others);
  await Promise.all(outcomes);
  await eventually('it serves again', () => log.refusal('w1', false) === undefined, 5_000).catch(() => {
    report.notServedAgain += 1;
  });
  await log.receive(newCall(`c${cycle}-after`)).catch(() => {
    report.notServedAgain += 1;
  });
}

const keysOf = (cycle: number) => Array.from({ length: keysPerCycle }, (_, at) => `c${cycle}-k${at}`);

/** Fills the disk to the last byte, as another program would. */
function fill(file: string): void {
  const descriptor = openSync(file, 'a');
  try {
    for (const bytes of [1024 * 1024, 4096]) {
      const chunk = Buffer.alloc(bytes, 1);
      try {
        while (writeSync(descriptor, chunk) === bytes);
      } catch {
        // The disk is full now.
      }
    }
  } finally {
    closeSync(descriptor);
  }
}
