/**
 * Runs a log whose disk fails at the n-th system call, under strace, and reports the observed effects. Not here: the choice and
 * number of faults (failed-disk.test.ts, test/long/broker-disk.long.ts).
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { makeFolder, runLog, startLog, statesOf } from './log-process.js';

export interface Fault {
  readonly call: 'fsync' | 'pwrite64';
  readonly error: 'EIO' | 'ENOSPC';
  /** Counted from the start of the process, so the first calls belong to opening the log. */
  readonly nth: number;
  /** True: no store exists yet. False: a store exists, and its last process was killed. */
  readonly isFirst?: boolean;
}

export interface FaultReport {
  /** False when the process ended before its n-th system call. */
  readonly hasStruck: boolean;
  /**
   * The failed call was on the folder. SQLite syncs the folder and ignores the result; Hostler syncs it later and does not ignore
   * it.
   */
  readonly isOfFolder: boolean;
  /** The log was open before the fault, so receipts could be given. */
  readonly wasOpen: boolean;
  readonly receipts: number;
  readonly problems: readonly string[];
  readonly refusals: readonly string[];
  /** Receipts and outcomes that were given after the failure was reported. */
  readonly promisedAfter: number;
  /** Syncs and writes of the file and its write-ahead log after the fault. */
  readonly syncedAfter: number;
  readonly writtenAfter: number;
  /** Receipts and outcomes that a new process does not find. */
  readonly lost: number;
  readonly isOpenAgain: boolean;
}

const traced = 'fsync,fdatasync,pwrite64,sync_file_range,msync,ftruncate';

export async function runWithFault({ call, error, nth, isFirst }: Fault, calls = 300): Promise<FaultReport> {
  const { folder, remove } = makeFolder('fault');
  try {
    const trace = path.join(folder, 'trace');
    const place = path.join(folder, 'log');
    const before = isFirst ? [] : await killedOne(place);
    const inject = `inject=${call}:error=${error}:when=${nth}`;
    const strace = ['strace', '-f', '-y', '-o', trace, '-e', `trace=${traced}`, '-e', inject];
    const said = await runLog(place, ['work', 8, calls], strace);
    const lines = readFileSync(trace, 'utf8').split('\n');
    const struckAt = lines.findIndex((line) => line.includes('(INJECTED)'));
    const after = struckAt < 0 ? [] : lines.slice(struckAt + 1).filter((line) => line.includes('/calls.db'));
    const failedAt = said.lines.indexOf('P store_failed');
    const later = failedAt < 0 ? [] : said.lines.slice(failedAt);
    const [received, finished, acked] = [said.of('R'), new Set([...before, ...said.of('F')]), new Set(said.of('t'))];
    const states = await statesOf(place, [...before, ...received]).catch(() => undefined);
    const isLost = (key: string) =>
      !(finished.has(key) ? ['done'] : ['running', 'done']).includes(`${states?.get(key)}`);
    return {
      hasStruck: struckAt >= 0,
      isOfFolder: struckAt >= 0 && !lines[struckAt]?.includes('/calls.db'),
      wasOpen: said.lines.includes('opened'),
      receipts: received.length,
      problems: said.of('P'),
      refusals: said.of('X'),
      promisedAfter: later.filter((line) => /^(R |F |opened)/.test(line)).length,
      syncedAfter: after.filter((line) => /sync/.test(line)).length,
      writtenAfter: after.filter((line) => /pwrite64|ftruncate/.test(line)).length,
      lost: [...before, ...received].filter((key) => !acked.has(key) && isLost(key)).length,
      isOpenAgain: states !== undefined,
    };
  } finally {
    remove();
  }
}

/** Keys of finished calls whose replies were not acknowledged. They are only in the write-ahead log. */
async function killedOne(folder: string): Promise<string[]> {
  const log = startLog(folder, ['work', 8]);
  await log.reached(80);
  log.child.kill('SIGKILL');
  const said = await log.ended;
  const acked = new Set(said.of('t'));
  return said.of('F').filter((key) => !acked.has(key));
}
