/**
 * A process table of plain data, and a `kill` that only records signals.
 */

import type { Kill } from '../../src/transports/stdio/process-group.js';
import type { Lookup, ProcessFacts, ProcessTable } from '../../src/transports/stdio/process-table.js';

export interface FakeProcess extends Partial<ProcessFacts> {
  readonly pid: number;
  readonly mark?: string;
  /** Survives SIGTERM. */
  readonly stubborn?: boolean;
  /** Survives SIGKILL too, like a process that is stuck in the kernel. */
  readonly stuck?: boolean;
}

export class FakeProcesses implements ProcessTable {
  readonly signals: Array<[number, string]> = [];
  seesMarks = true;
  startSlack = 0;
  /** True: every read of the table fails. */
  isUnreadable = false;
  #processes: FakeProcess[];

  constructor(...processes: FakeProcess[]) {
    this.#processes = processes;
  }

  add(process: FakeProcess): void {
    this.#processes.push(process);
  }

  read(pid: number): Lookup {
    if (this.isUnreadable) return 'unknown';
    const found = this.#processes.find((process) => process.pid === pid);
    return found ? facts(found) : 'gone';
  }

  startOf(pid: number): number {
    if (this.isUnreadable) throw Object.assign(new Error('too many open files'), { code: 'EMFILE' });
    return this.#processes.find((process) => process.pid === pid)?.startTicks ?? 100;
  }

  living(): readonly ProcessFacts[] | 'unknown' {
    if (this.isUnreadable) return 'unknown';
    return this.#processes.map(facts).filter(({ state }) => state !== 'Z');
  }

  mark(pid: number): string | undefined {
    return this.seesMarks ? this.#processes.find((process) => process.pid === pid)?.mark : undefined;
  }

  bootId = (): string => 'boot-now';
  pidSpace = () => 'pid:[1]';

  readonly kill: Kill = (pid, signal) => {
    const hit = this.#processes.filter((process) => (pid < 0 ? facts(process).pgid === -pid : process.pid === pid));
    if (hit.length === 0) throw Object.assign(new Error('kill ESRCH'), { code: 'ESRCH' });
    if (signal === 0) return;
    this.signals.push([pid, signal]);
    const dies = (process: FakeProcess) =>
      hit.includes(process) && !process.stuck && (signal === 'SIGKILL' || (signal === 'SIGTERM' && !process.stubborn));
    this.#processes = this.#processes.filter((process) => !dies(process));
  };
}

const facts = (process: FakeProcess): ProcessFacts => ({
  ppid: 1,
  pgid: process.pid,
  startTicks: 100,
  state: 'S',
  ...process,
});
