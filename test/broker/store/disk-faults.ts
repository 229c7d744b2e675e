/**
 * One run of a store whose disk fails at the n-th call, under strace, and what was seen of it.
 * Not here: which faults and how many (failed-disk.test.ts, test/long/broker-disk.long.ts).
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { makeFolder, runStore, startStore } from './store-process.js';

export interface Fault {
  readonly call: 'fsync' | 'pwrite64';
  readonly error: 'EIO' | 'ENOSPC';
  /** Counted from the start of the process: the first ones are of opening. */
  readonly nth: number;
  /** There is no store yet; otherwise there is one, and its last process was killed. */
  readonly isFirst?: boolean;
}

export interface FaultReport {
  /** False when the process ended before its n-th call. */
  readonly hasStruck: boolean;
  /** What was synced then was the folder. SQLite does that with its log and does not mind; we do it once more, and do. */
  readonly isOfFolder: boolean;
  /** It was open, so promises were made. */
  readonly wasOpen: boolean;
  readonly receipts: number;
  readonly states: readonly string[];
  readonly refusals: readonly string[];
  /** Receipts, and other promises, that were given after the failure was told. */
  readonly promisedAfter: number;
  /** Syncs and writes of the file and its log after the fault. */
  readonly syncedAfter: number;
  readonly writtenAfter: number;
  /** Receipts whose mail a new process does not find, or finds out of order. */
  readonly lost: number;
  readonly isOrdered: boolean;
  readonly isOpenAgain: boolean;
  /** What the next process said beside the mail it found, for people. */
  readonly stderrTails: string;
}

const traced = 'fsync,fdatasync,pwrite64,sync_file_range,msync,ftruncate';

export async function runWithFault({ call, error, nth, isFirst }: Fault, puts = 400): Promise<FaultReport> {
  const { folder, remove } = makeFolder('fault');
  try {
    const log = path.join(folder, 'trace');
    const store = path.join(folder, 'store');
    const before = isFirst ? [] : await killedOne(store);
    const inject = `inject=${call}:error=${error}:when=${nth}`;
    const strace = ['strace', '-f', '-y', '-o', log, '-e', `trace=${traced}`, '-e', inject];
    const said = await runStore(store, ['put', 8, puts], strace);
    const calls = readFileSync(log, 'utf8').split('\n');
    const struckAt = calls.findIndex((line) => line.includes('(INJECTED)'));
    const after = struckAt < 0 ? [] : calls.slice(struckAt + 1).filter((line) => line.includes('/broker.db'));
    const again = await runStore(store, ['read']);
    const held = again.of('M');
    const failedAt = said.lines.indexOf('S failed');
    const later = failedAt < 0 ? [] : said.lines.slice(failedAt);
    const heldNow = new Set(held);
    return {
      hasStruck: struckAt >= 0,
      isOfFolder: struckAt >= 0 && !calls[struckAt]?.includes('/broker.db'),
      wasOpen: said.lines.includes('opened'),
      receipts: said.of('R').length,
      states: said.of('S'),
      refusals: said.of('X'),
      promisedAfter: later.filter((line) => /^(R |flushed|finished|opened)/.test(line)).length,
      syncedAfter: after.filter((line) => /sync/.test(line)).length,
      writtenAfter: after.filter((line) => /pwrite64|ftruncate/.test(line)).length,
      lost: [...before, ...said.of('R')].filter((receipt) => !heldNow.has(receipt)).length,
      isOrdered: held.every((mail, at) => at === 0 || seqOf(mail) > seqOf(held[at - 1] as string)),
      isOpenAgain: again.lines.at(-1) === 'closed',
      stderrTails: [...again.lines.filter((line) => !line.startsWith('M ')), again.exitCode, again.stderr].join('; '),
    };
  } finally {
    remove();
  }
}

/** Its receipts. What it held is in the log only, which the next one has to take over. */
async function killedOne(folder: string): Promise<string[]> {
  const store = startStore(folder, ['put', 8]);
  await store.reached(40);
  store.child.kill('SIGKILL');
  return (await store.ended).of('R');
}

const seqOf = (said: string): number => Number(said.split(' ')[0]);
