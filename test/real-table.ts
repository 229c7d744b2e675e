/**
 * The process table of this machine for tests. In a namespace without /proc (test/long/no-proc.long.ts) the real /proc is mounted
 * elsewhere: Hostler cannot read it, but the test can check which processes are left.
 */
import { readFileSync } from 'node:fs';
import { factsOf, type ProcessFacts, procTable } from '../src/transports/stdio/process-table.js';

export const procFolder = process.env.TEST_PROC_FOLDER ?? '/proc';
export const hasProc = procFolder === '/proc';
export const realTable = procTable(procFolder);

export const livingNow = (): readonly ProcessFacts[] => {
  const living = realTable.living();
  if (living === 'unknown') throw new Error(`${procFolder} cannot be read`);
  return living;
};

/** Resident memory of this process. Node can read it only from /proc. */
export const ownRssBytes = (): number =>
  Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`${procFolder}/self/status`, 'utf8'))?.[1]) * 1_024;

/** Undefined when there is no such process. */
export const factsNow = (pid: number): ProcessFacts | undefined => factsOf(realTable.read(pid));
